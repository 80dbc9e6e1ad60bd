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

// Writes chunk `c` of the row at `row`: whole where the row fills it, else by elements.
template <class T>
__device__ __forceinline__ void store_chunk(char* row, Chunk c, const Packet& packet) {
  char* address = row + c.first * static_cast<std::int64_t>(sizeof(T));
  if (c.template full<T>()) {
    store_packet(address, packet);
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

// ---- Rows on the chip ---------------------------------------------------------------------------
// The same with as little in registers as can be: columns and chunks are ints, and what kind of
// chunk v is takes one comparison.

// Chunks begin … begin + count − 1.
struct ChunkRange {
  int begin = 0;
  unsigned count = 0;
  __device__ __forceinline__ bool has(int v) const {
    return static_cast<unsigned>(v - begin) < count;
  }
};
__device__ __forceinline__ ChunkRange chunks_between(int begin, int end) {
  return {begin, static_cast<unsigned>(end > begin ? end - begin : 0)};
}

// The columns of a row: chunk v holds columns v·E − shift and on. kWhole: known when compiled to
// have no shift and only whole chunks, as rows of 16-byte aligned tensors do whose N is a multiple
// of E; three quarters of the instructions for a packet of a row are for what else may be.
template <class T, bool kWhole = false>
struct RowShape {
  static constexpr int E = kElements<T>;
  int shift = 0;
  int cols = 0;     // 0: no row, every chunk is empty
  ChunkRange full;  // chunks that lie in the row with all their elements

  RowShape() = default;
  __device__ __forceinline__ RowShape(int row_shift, int row_cols)
      : shift(kWhole ? 0 : row_shift),
        cols(row_cols),
        full(chunks_between(shift > 0 ? 1 : 0, (row_cols + shift) / E)) {}
  __device__ __forceinline__ int chunks() const {
    return kWhole ? static_cast<int>(full.count) : (cols + shift + E - 1) / E;
  }
  // Whether element i of chunk v lies in the row.
  __device__ __forceinline__ bool holds(int v, int i) const {
    return static_cast<unsigned>(v * E - shift + i) < static_cast<unsigned>(cols);
  }
  // Elements of chunk v in the row.
  __device__ __forceinline__ int count(int v) const {
    if (full.has(v)) return E;
    int n = 0;
#pragma unroll
    for (int i = 0; i < E; ++i) n += holds(v, i);
    return n;
  }
  __device__ __forceinline__ void mask(accumulate_t<T> (&values)[E], int v) const {
    if (full.has(v)) return;
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if (kWhole || !holds(v, i)) values[i] = 0;
    }
  }
  // Writes chunk v of the row whose chunk 0 lies at `chunk0`.
  __device__ __forceinline__ void store(char* chunk0, int v, const Packet& packet) const {
    char* address = chunk0 + std::int64_t{v} * 16;
    if (full.has(v)) {
      store_packet(address, packet);
      return;
    }
    if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        if (holds(v, i)) reinterpret_cast<T*>(address)[i] = raw_element<T>(packet, i);
      }
    }
  }
};

// Elements first … of U at `address`, of columns column … column + kElements<U> − 1: those that the
// row has.
template <class U>
__device__ __forceinline__ void load_elements(Packet& packet, const char* address, int column,
                                              int cols) {
#pragma unroll
  for (int i = 0; i < kElements<U>; ++i) {
    if (static_cast<unsigned>(column + i) < static_cast<unsigned>(cols)) {
      set_element<U>(packet, i, reinterpret_cast<const U*>(address)[i]);
    }
  }
}

// How a row is read: chunks in `whole` as packets. The others, at the ends of the tensor (or all,
// where the row has not the output's alignment), are left to load_rest: a kernel issues all its
// load_whole first, which cost a predicate each, and looks for a rest once they are under way.
// Neither masks: elements outside the row may be anything.
struct RowReader {
  const char* chunk0 = nullptr;
  ChunkRange whole;
  __device__ __forceinline__ Packet load_whole(int v) const {
    return whole.has(v) ? load_once(chunk0 + std::int64_t{v} * 16) : zero_packet();
  }
  template <class T, bool kWhole>
  __device__ __forceinline__ bool has_rest(const RowShape<T, kWhole>& shape) const {
    return !kWhole && whole.count < static_cast<unsigned>(shape.chunks());
  }
  template <class T, bool kWhole>
  __device__ __forceinline__ void load_rest(Packet& packet, int v,
                                            const RowShape<T, kWhole>& shape) const {
    if (kWhole || whole.has(v)) return;
    load_elements<T>(packet, chunk0 + std::int64_t{v} * 16, v * kElements<T> - shape.shift,
                     shape.cols);
  }
};
template <class T, bool kWhole>
__device__ __forceinline__ RowReader reader_of(const Rows& rows, const char* row,
                                               const RowShape<T, kWhole>& shape) {
  if constexpr (kWhole) return {row, shape.full};
  RowReader reader;
  reader.chunk0 = row - shape.shift * static_cast<int>(sizeof(T));
  const std::int64_t readable = (rows.readable_end - reader.chunk0) / 16;
  const int chunks = shape.chunks();
  if (reinterpret_cast<std::uintptr_t>(reader.chunk0) % 16 == 0) {
    reader.whole = chunks_between(reader.chunk0 < rows.readable_begin ? 1 : 0,
                                  readable < chunks ? static_cast<int>(readable) : chunks);
  }
  return reader;
}

// One chunk of a parameter, on its way from request to use; 0 outside the row. kMayBeWide:
// registers for a wide one.
template <class T, bool kMayBeWide = true>
struct ParameterPackets {
  using A = accumulate_t<T>;
  static constexpr int E = kElements<T>;
  static constexpr int kWide = kMayBeWide ? E / kElements<A> : 1;  // packets of a wide parameter
  Packet raw[kWide];

  __device__ __forceinline__ void request(Parameter p, A absent, int v, const RowShape<T>& shape) {
    if (p.data == nullptr) {
      raw[0] = packet_of<T>(absent);
    } else if (kWide > 1 && p.wide) {
      fetch<A>(p, v, shape);
    } else {
      fetch<T>(p, v, shape);
    }
  }
  __device__ __forceinline__ void take(Parameter p, A (&values)[E]) const {
    if (kWide > 1 && p.wide && p.data != nullptr) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        values[i] = element<A>(raw[i / kElements<A>], i % kElements<A>);
      }
    } else {
#pragma unroll
      for (int i = 0; i < E; ++i) values[i] = element<T>(raw[0], i);
    }
  }

 private:
  template <class U>
  __device__ __forceinline__ void fetch(Parameter p, int v, const RowShape<T>& shape) {
    constexpr int kPackets = E / kElements<U>;
    const char* chunk = static_cast<const char*>(p.data) +
                        (std::int64_t{v} * E - shape.shift) * static_cast<int>(sizeof(U));
    if (shape.full.has(v) && reinterpret_cast<std::uintptr_t>(chunk) % 16 == 0) {
#pragma unroll
      for (int k = 0; k < kPackets; ++k) raw[k] = reinterpret_cast<const Packet*>(chunk)[k];
      return;
    }
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      raw[k] = zero_packet();
      load_elements<U>(raw[k], chunk + k * 16, v * E - shape.shift + k * kElements<U>, shape.cols);
    }
  }
};

// The same where rows are whole packets, of a parameter that is known when compiled to be wide or
// not: no branches.
template <class T, bool kWide>
struct WholeParameterPackets {
  using A = accumulate_t<T>;
  using U = std::conditional_t<kWide, A, T>;
  static constexpr int E = kElements<T>, kPackets = E / kElements<U>;
  Packet raw[kPackets];

  __device__ __forceinline__ void request(Parameter p, A absent, int v,
                                          const RowShape<T, true>& shape) {
    const char* chunk = static_cast<const char*>(p.data) + std::int64_t{v} * kPackets * 16;
    const bool here = p.data != nullptr && shape.full.has(v);
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      raw[k] = packet_of<U>(static_cast<accumulate_t<U>>(absent));
      if (here) raw[k] = reinterpret_cast<const Packet*>(chunk)[k];
    }
  }
  __device__ __forceinline__ void take(Parameter, A (&values)[E]) const {
#pragma unroll
    for (int i = 0; i < E; ++i) values[i] = element<U>(raw[i / kElements<U>], i % kElements<U>);
  }
};

}  // namespace hipnorm::gpu
