// Asynchronous copies, their barriers, and clusters: what sm_90 has in hardware.
#pragma once

#include "tests/emulator/lds.h"

namespace hipnorm::gpu {

struct alignas(8) AsyncBarrier {
  std::uint64_t state;
};
struct alignas(8) Pair {
  float a, b;
};

// An address in another block of the cluster.
template <class T>
struct Remote {
  std::ptrdiff_t offset = 0;
  int rank = 0;
  friend Remote operator+(Remote r, std::ptrdiff_t n) {
    return {r.offset + n * static_cast<std::ptrdiff_t>(sizeof(T)), r.rank};
  }
};

}  // namespace hipnorm::gpu

namespace hipnorm::emulator {

void barrier_init(std::ptrdiff_t barrier, unsigned arrivals, Site site);
void barrier_init_fence(Site site);
void barrier_arrive(std::ptrdiff_t barrier, unsigned bytes, Site site);
void barrier_wait(std::ptrdiff_t barrier, unsigned parity, Site site);
void copy_to_lds(std::ptrdiff_t target, const void* source, unsigned bytes, std::ptrdiff_t barrier,
                 Site site);
void check_rank(int rank, Site site);
struct RemotePlace {
  std::ptrdiff_t offset;
  int rank;
};
void post(RemotePlace slot, const void* value, unsigned bytes, RemotePlace barrier, Site site);
void cluster_arrive(Site site);
void cluster_wait(Site site);
void fence_async(Site site);

}  // namespace hipnorm::emulator

namespace hipnorm::gpu {

using emulator::Site;

inline void barrier_init(Lds<AsyncBarrier> b, unsigned arrivals, Site site = Site::current()) {
  emulator::barrier_init(b.byte_offset(), arrivals, site);
}
inline void barrier_init_fence(Site site = Site::current()) { emulator::barrier_init_fence(site); }
inline void barrier_arrive(Lds<AsyncBarrier> b, Site site = Site::current()) {
  emulator::barrier_arrive(b.byte_offset(), 0, site);
}
inline void barrier_arrive_expect(Lds<AsyncBarrier> b, unsigned bytes,
                                  Site site = Site::current()) {
  emulator::barrier_arrive(b.byte_offset(), bytes, site);
}
inline void barrier_wait(Lds<AsyncBarrier> b, unsigned parity, Site site = Site::current()) {
  emulator::barrier_wait(b.byte_offset(), parity, site);
}
inline void copy_to_lds(Lds<unsigned char> target, const void* source, unsigned bytes,
                        Lds<AsyncBarrier> b, Site site = Site::current()) {
  emulator::copy_to_lds(target.byte_offset(), source, bytes, b.byte_offset(), site);
}
inline void fence_async(Site site = Site::current()) { emulator::fence_async(site); }

inline int cluster_rank() { return emulator::current->block->rank; }
inline void cluster_arrive(Site site = Site::current()) { emulator::cluster_arrive(site); }
inline void cluster_wait(Site site = Site::current()) { emulator::cluster_wait(site); }

template <class T>
Remote<T> remote(Lds<T> local, int rank, Site site = Site::current()) {
  emulator::check_rank(rank, site);
  return {local.byte_offset(), rank};
}
inline void post(Remote<Pair> slot, Pair value, Remote<AsyncBarrier> b,
                 Site site = Site::current()) {
  emulator::post({slot.offset, slot.rank}, &value, sizeof value, {b.offset, b.rank}, site);
}
inline void post(Remote<float> slot, float value, Remote<AsyncBarrier> b,
                 Site site = Site::current()) {
  emulator::post({slot.offset, slot.rank}, &value, sizeof value, {b.offset, b.rank}, site);
}

}  // namespace hipnorm::gpu
