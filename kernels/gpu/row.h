// Rows of any length and alignment, read and written 16 bytes at a time.
//
// A row is covered by chunks: the aligned 16-byte pieces of memory that its *output* row touches.
// With `shift` elements of chunk 0 before column 0, chunk v holds columns v·E − shift to
// v·E − shift + E − 1 (E = kElements<T>). So every store but the first and last of a row is a whole
// aligned packet, whatever N is, and so is every load of a tensor whose rows have the output's
// alignment, as all contiguous tensors do. Loads of first and last chunks also bring elements of
// the neighbouring rows; they are masked. A tensor of another alignment is read by elements.
//
// Which columns a lane holds depends on the shift only. A group of lanes that keeps weights or
// sums in registers over several rows must take rows of one shift: rows c, c + P, c + 2P … with
// P·N·sizeof(T) a multiple of 16 (plan() sees to that: Plan::groups).
#pragma once

#include "kernels/gpu/packet.h"

namespace hipnorm::gpu {

// [rows, cols] of T in global memory, to read. Bytes from readable_begin to readable_end (multiples
// of 16, inside the tensor's extent) may be read in whole packets, gaps between rows included.
struct Rows {
  const char* base = nullptr;
  std::int64_t stride = 0;  // bytes
  const char* readable_begin = nullptr;
  const char* readable_end = nullptr;

  __host__ __device__ __forceinline__ const char* row(std::int64_t r) const {
    return base + r * stride;
  }
};

// Host: `stride` in elements.
inline Rows make_rows(const void* base, std::int64_t stride, std::int64_t rows, std::int64_t cols,
                      int element_size) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const auto end =
      address + static_cast<std::uintptr_t>(((rows - 1) * stride + cols) * element_size);
  Rows result;
  result.base = static_cast<const char*>(base);
  result.stride = stride * element_size;
  result.readable_begin = result.base + ((16 - address % 16) % 16);
  result.readable_end = result.base + static_cast<std::ptrdiff_t>(end / 16 * 16 - address);
  return result;
}

// Elements of chunk 0 before column 0 of the row at `row`.
template <class T>
__device__ __forceinline__ int shift_of(const void* row) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16) / static_cast<int>(sizeof(T));
}
// Chunks of a row of `cols` columns.
template <class T>
__host__ __device__ constexpr std::int64_t chunks_of(std::int64_t cols, int shift) {
  return (shift + cols + kElements<T> - 1) / kElements<T>;
}

// The columns first … first + E − 1 of one chunk, of which elements begin … end − 1 lie in the row.
struct Chunk {
  std::int64_t first;  // may be negative
  int begin;
  int end;
  template <class T>
  __device__ __forceinline__ bool full() const {
    return begin == 0 && end == kElements<T>;
  }
  __device__ __forceinline__ bool empty() const { return end <= begin; }
  __device__ __forceinline__ bool holds(int i) const { return i >= begin && i < end; }
};
// Chunk v of a row. Index: int where the row fits on the chip, else std::int64_t.
template <class T, class Index>
__device__ __forceinline__ Chunk chunk(Index v, int shift, Index cols) {
  const Index first = v * kElements<T> - shift;
  const Index left = cols - first;  // columns from `first` to the row's end
  return {first, first < 0 ? static_cast<int>(-first) : 0,
          left < kElements<T> ? static_cast<int>(left < 0 ? 0 : left) : kElements<T>};
}

// Sets the elements outside the row to zero.
template <class T>
__device__ __forceinline__ void mask(Packet& packet, Chunk c) {
  if (c.template full<T>()) return;
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (!c.holds(i)) set_element<T>(packet, i, T{});
  }
}
template <class T>
__device__ __forceinline__ void mask(accumulate_t<T> (&values)[kElements<T>], Chunk c) {
  if (c.template full<T>()) return;
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (!c.holds(i)) values[i] = 0;
  }
}

// Chunk `c` of the row at `row` of `rows`; elements outside the row are zero.
template <class T>
__device__ __forceinline__ Packet load_chunk(const Rows& rows, const char* row, Chunk c) {
  Packet packet = zero_packet();
  if (c.empty()) return packet;
  const char* address = row + c.first * static_cast<std::int64_t>(sizeof(T));
  if (reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && address >= rows.readable_begin &&
      address + 16 <= rows.readable_end) {
    packet = *reinterpret_cast<const Packet*>(address);
    mask<T>(packet, c);
    return packet;
  }
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (c.holds(i)) set_element<T>(packet, i, reinterpret_cast<const T*>(address)[i]);
  }
  return packet;
}

// Writes chunk `c` of the row at `row`: whole where the row fills it, else by elements.
template <class T>
__device__ __forceinline__ void store_chunk(char* row, Chunk c, const Packet& packet) {
  char* address = row + c.first * static_cast<std::int64_t>(sizeof(T));
  if (c.template full<T>()) {
    *reinterpret_cast<Packet*>(address) = packet;
    return;
  }
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (c.holds(i)) reinterpret_cast<T*>(address)[i] = raw_element<T>(packet, i);
  }
}

// weight or bias [cols]: T, or the accumulate type where `wide`. Null: `absent` everywhere.
struct Parameter {
  const void* data = nullptr;
  bool wide = false;
};

// The parameter at the columns of chunk `c`; 0 outside the row.
template <class T>
__device__ __forceinline__ void load_parameter(Parameter p, Chunk c, accumulate_t<T> absent,
                                               accumulate_t<T> (&values)[kElements<T>]) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  if (p.data == nullptr) {
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = absent;
    return;
  }
  if (p.wide) {
    const A* address = static_cast<const A*>(p.data) + c.first;
    if (c.template full<T>() && reinterpret_cast<std::uintptr_t>(address) % 16 == 0) {
      constexpr int kEach = kElements<A>;
#pragma unroll
      for (int k = 0; k < E / kEach; ++k) {
        const Packet packet = reinterpret_cast<const Packet*>(address)[k];
#pragma unroll
        for (int i = 0; i < kEach; ++i) values[k * kEach + i] = element<A>(packet, i);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = c.holds(i) ? address[i] : A{0};
    return;
  }
  const T* address = static_cast<const T*>(p.data) + c.first;
  if (c.template full<T>() && reinterpret_cast<std::uintptr_t>(address) % 16 == 0) {
    const Packet packet = *reinterpret_cast<const Packet*>(address);
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = element<T>(packet, i);
    return;
  }
#pragma unroll
  for (int i = 0; i < E; ++i) values[i] = c.holds(i) ? to_accumulate(address[i]) : A{0};
}

}  // namespace hipnorm::gpu
