// What a thread sees: its coordinates, barriers, shuffles, flags. Each operation may let other
// threads run first. Calls carry their place in the source, for reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace hipnorm::emulator {

using Site = std::source_location;

struct BlockContext {
  dim3 block_idx{0, 0, 0}, block_dim, grid_dim;
  unsigned char* lds = nullptr;
  std::ptrdiff_t lds_bytes = 0;
  int rank = 0;              // in its cluster
  bool watches_lds = false;  // accesses to LDS go through on_lds_access()
};
struct ThreadContext {
  dim3 thread_idx{0, 0, 0};
  BlockContext* block = nullptr;
};
extern ThreadContext* current;  // the running thread's

enum class Shuffle { lane, exclusive_or };
// Hands `bits` to the wave and returns those of another lane.
std::uint64_t shuffle(Shuffle kind, std::uint64_t bits, std::size_t size, int argument, int width,
                      Site site);
void sync_threads(Site site);
void sync_wave(Site site);

template <class T>
T shuffle_value(Shuffle kind, T value, int argument, int width, Site site) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "float, double and integers of 32 or 64 bits are shuffled");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = shuffle(kind, bits, sizeof value, argument, width, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace hipnorm::emulator

namespace hipnorm::gpu {

// Lanes of a wave wait for each other; what they wrote before is seen after.
inline void wave_sync(emulator::Site site = emulator::Site::current()) {
  emulator::sync_wave(site);
}
// Relaxed accesses of device scope, one of 8 bytes each.
std::uint64_t agent_load(const std::uint64_t* flag,
                         emulator::Site site = emulator::Site::current());
void agent_store(std::uint64_t* flag, std::uint64_t value,
                 emulator::Site site = emulator::Site::current());

}  // namespace hipnorm::gpu
