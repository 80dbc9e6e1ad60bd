// Packets at any element's address, for tensors whose rows do not have the alignment of the chunks
// that a kernel needs: two aligned loads around the address and a shift. The second load is the
// neighbour lane's first, so it costs an L1 access and no traffic.
#pragma once

#include "kernels/gpu/row.h"

namespace hipnorm::gpu {

// The 16 bytes that start `bytes` (0 … 15) after `low` begins; `high` follows `low` in memory.
__device__ __forceinline__ Packet shifted(const Packet& low, const Packet& high, int bytes) {
  std::uint32_t w[7] = {low.word[0],  low.word[1],  low.word[2], low.word[3],
                        high.word[0], high.word[1], high.word[2]};
  std::uint32_t last = high.word[3];
  if (bytes & 8) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 2];
    w[5] = last;
  }
  if (bytes & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const int bits = 8 * (bytes & 3);
  Packet result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t pair = w[i] | static_cast<std::uint64_t>(w[i + 1]) << 32;
    result.word[i] = static_cast<std::uint32_t>(pair >> bits);
  }
  return result;
}

// A packet on its way from memory: request() every packet of a batch, then get() them.
template <bool kAligned>
struct Fetch;

template <>
struct Fetch<true> {  // at multiples of 16
  Packet packet;
  __device__ __forceinline__ void request(const char* address) {
    packet = *reinterpret_cast<const Packet*>(address);
  }
  __device__ __forceinline__ void clear() { packet = zero_packet(); }
  __device__ __forceinline__ Packet get() const { return packet; }
  // Whether packets from `first` to the one at `last` may be requested.
  __device__ __forceinline__ static bool readable(const Rows& rows, const char* first,
                                                  const char* last) {
    return first >= rows.readable_begin && last + 16 <= rows.readable_end;
  }
};

template <>
struct Fetch<false> {  // at any address
  Packet low, high;
  int bytes;
  __device__ __forceinline__ void request(const char* address) {
    bytes = static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16);
    const auto* packets = reinterpret_cast<const Packet*>(address - bytes);
    low = packets[0];
    high = packets[1];
  }
  __device__ __forceinline__ void clear() {
    low = high = zero_packet();
    bytes = 0;
  }
  __device__ __forceinline__ Packet get() const { return shifted(low, high, bytes); }
  __device__ __forceinline__ static bool readable(const Rows& rows, const char* first,
                                                  const char* last) {
    return first >= rows.readable_begin && last + 32 <= rows.readable_end;
  }
};

// The elements of chunk `c` that lie in the row, the others zero, one by one: where a packet would
// reach beyond the tensor.
template <class T>
__device__ __forceinline__ Packet load_elements(const char* address, Chunk c) {
  Packet packet = zero_packet();
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (c.holds(i)) set_element<T>(packet, i, reinterpret_cast<const T*>(address)[i]);
  }
  return packet;
}

// Whether the row at `row` has its packets at multiples of 16, `shift` elements before it.
template <class T>
__device__ __forceinline__ bool aligned_at(const char* row, int shift) {
  return shift_of<T>(row) == shift;
}

}  // namespace hipnorm::gpu
