// Narrow rows: as many as a vector has lanes are in work at once, one in each lane, so that nothing
// is summed across lanes, and a row's fixed costs (a root, quotients, masks for its end) are shared
// by all of them. (20000x3 forward on two cores of a Zen 4: f32 71 µs, 380 with rows along the
// vectors; bf16 20000x16: 112 and 665.)
#pragma once

#include <utility>

#include "kernels/cpu/output.h"
#include "kernels/cpu/parameter.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// The widest such rows. Wider ones win less, and reading 16 of them together, a line of each in
// turn, keeps the processor from fetching ahead (f32 20000x64 forward: 705 µs, 408 along the
// vectors; backward, with three tensors: 20000x32 325 and 276). f64 has 8 lanes.
template <class T>
inline constexpr std::int64_t kNarrowForwardBytes = sizeof(T) == 8 ? 192 : 128;
inline constexpr std::int64_t kNarrowBackwardBytes = 96;
// Their columns, a multiple of kLanes of every type and instruction set.
inline constexpr std::int64_t kNarrow = 64;
// Fewer rows leave most lanes empty.
inline constexpr std::int64_t kFewRows = 3;

template <class T>
constexpr bool is_narrow(std::int64_t cols, Range rows, std::int64_t bytes) {
  return cols * static_cast<std::int64_t>(sizeof(T)) <= bytes && rows.end - rows.begin >= kFewRows;
}

template <class T>
inline constexpr int kRowsAtOnce = kLanes<accumulate_t<T>>;

// kLanes<A> elements of T and their arithmetic vector, in the natural order.
template <class T>
HIPNORM_INLINE typename Packet<T>::V widen(const T* p) {
  if constexpr (sizeof(T) == sizeof(accumulate_t<T>)) {
    return load<T>(p);
  } else if constexpr (__is_same(T, bf16)) {
    typedef std::uint16_t U16 __attribute__((vector_size(kVecBytes / 2)));
    U16 u;
    std::memcpy(&u, p, sizeof u);
    return reinterpret_cast<F32x>(__builtin_convertvector(u, U32x) << 16);
  } else {
#if HIPNORM_VEC_BYTES == 64
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif HIPNORM_VEC_BYTES == 32
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    F32x v;
    for (int i = 0; i < kRowsAtOnce<T>; ++i) v[i] = to_arithmetic(p[i]);
    return v;
#endif
  }
}
template <class T>
HIPNORM_INLINE void narrow(T* p, typename Packet<T>::V v) {
  if constexpr (sizeof(T) == sizeof(accumulate_t<T>)) {
    store<T>(p, v);
  } else if constexpr (__is_same(T, bf16)) {
    typedef std::uint16_t U16 __attribute__((vector_size(kVecBytes / 2)));
    const U16 u = __builtin_convertvector(Packet<bf16>::round(v) >> 16, U16);
    std::memcpy(p, &u, sizeof u);
  } else {
#if HIPNORM_VEC_BYTES == 64
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif HIPNORM_VEC_BYTES == 32
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < kRowsAtOnce<T>; ++i) p[i] = from_arithmetic<T>(v[i]);
#endif
  }
}

// The first `count` ≤ kLanes<A> of them; the others read as 0.
template <class T>
HIPNORM_INLINE typename Packet<T>::V widen_head(const T* p, std::int64_t count) {
  T buffer[kRowsAtOnce<T>] = {};
#if HIPNORM_VEC_BYTES == 64
  const auto mask = (1u << count) - 1;
  if constexpr (sizeof(T) == 2) {
    const __m256i v = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p);
    std::memcpy(buffer, &v, sizeof v);
  } else if constexpr (sizeof(T) == 4) {
    const __m512i v = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p);
    std::memcpy(buffer, &v, sizeof v);
  } else {
    const __m512i v = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), p);
    std::memcpy(buffer, &v, sizeof v);
  }
#else
  copy_head<T, kRowsAtOnce<T>>(static_cast<T*>(buffer), p, count);
#endif
  return widen<T>(buffer);
}
template <class T>
HIPNORM_INLINE void narrow_head(T* p, typename Packet<T>::V v, std::int64_t count) {
  T buffer[kRowsAtOnce<T>];
  narrow<T>(buffer, v);
#if HIPNORM_VEC_BYTES == 64
  const auto mask = (1u << count) - 1;
  if constexpr (sizeof(T) == 2) {
    __m256i u;
    std::memcpy(&u, buffer, sizeof u);
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(mask), u);
  } else {
    __m512i u;
    std::memcpy(&u, buffer, sizeof u);
    if constexpr (sizeof(T) == 4) {
      _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), u);
    } else {
      _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), u);
    }
  }
#else
  copy_head<T, kRowsAtOnce<T>>(p, static_cast<const T*>(buffer), count);
#endif
}

// a₀ b₀ a₁ b₁ … of the lower or the upper halves.
template <int kHalf, class V, int... i>
HIPNORM_INLINE V interleave(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 2 + kHalf * (n / 2) + i % 2 * n)...);
}
// Lane j of v[i] and lane i of v[j] change places: each step turns the bits of both indices
// together by one place.
template <class A, int step = 1>
HIPNORM_INLINE void transpose(typename Simd<A>::V* v) {
  constexpr int n = kLanes<A>;
  if constexpr (step < n) {
    constexpr auto lanes = std::make_integer_sequence<int, n>();
    typename Simd<A>::V turned[n];
    unrolled<n / 2>([&](auto i) HIPNORM_INLINE_LAMBDA {
      turned[2 * i] = interleave<0>(v[i], v[i + n / 2], lanes);
      turned[2 * i + 1] = interleave<1>(v[i], v[i + n / 2], lanes);
    });
    transpose<A, 2 * step>(turned);
    unrolled<n>([&](auto i) HIPNORM_INLINE_LAMBDA { v[i] = turned[i]; });
  }
}

// Up to kLanes<A> rows of each of kArrays tensors: at(i, j) holds element j of tensor i's rows.
// Those of one column lie together: arrays of 4 KB each would meet in the same sets of L1.
template <class A, int kArrays>
class Lanes {
  using V = typename Simd<A>::V;

 public:
  HIPNORM_INLINE V& at(int i, std::int64_t j) { return column_[j][i]; }
  HIPNORM_INLINE const V& at(int i, std::int64_t j) const { return column_[j][i]; }

 private:
  V column_[kNarrow][kArrays];
};

// Fetches as many rows, two blocks of them from `rows` on: the processor does not look ahead past
// the arithmetic of a block (backward on two cores of a Zen 5, caches cold: f32 20000x16 0.33 ns an
// element, 1.39 without). Any address is allowed.
template <class T>
HIPNORM_INLINE void fetch_rows(const T* rows, std::int64_t stride, std::int64_t cols) {
  const T* ahead = rows + 2 * kRowsAtOnce<T> * stride;
  if (stride == cols) {
    fetch_bytes(ahead, kRowsAtOnce<T> * cols * static_cast<std::int64_t>(sizeof(T)));
  } else {
    for (int r = 0; r < kRowsAtOnce<T>; ++r) {
      fetch_bytes(ahead + r * stride, cols * static_cast<std::int64_t>(sizeof(T)));
    }
  }
}

// Lanes without a row, and columns from `cols` to the next multiple of kLanes<A>, become 0.
template <int kArray, class T, int kArrays>
void gather(const T* rows, std::int64_t stride, std::int64_t count, std::int64_t cols,
            Lanes<accumulate_t<T>, kArrays>& lanes) {
  using A = accumulate_t<T>;
  constexpr int n = kLanes<A>;
  for (std::int64_t j = 0; j < cols; j += n) {
    const std::int64_t width = cols - j < n ? cols - j : n;
    typename Simd<A>::V v[n];
    unrolled<n>([&](auto r) HIPNORM_INLINE_LAMBDA {
      const bool exists = r < count;
      v[r] = widen_head(exists ? rows + r * stride + j : rows, exists ? width : 0);
    });
    transpose<A>(v);
    unrolled<n>([&](auto r) HIPNORM_INLINE_LAMBDA { lanes.at(kArray, j + r) = v[r]; });
  }
}
// The other way: column(j) makes the vector of element j; it is called up to the next multiple of
// kLanes<A>.
template <class T, class Column>
HIPNORM_INLINE void scatter(T* rows, std::int64_t stride, std::int64_t count, std::int64_t cols,
                            const Column& column) {
  using A = accumulate_t<T>;
  constexpr int n = kLanes<A>;
  for (std::int64_t j = 0; j < cols; j += n) {
    const std::int64_t width = cols - j < n ? cols - j : n;
    typename Simd<A>::V v[n];
    unrolled<n>([&](auto r) HIPNORM_INLINE_LAMBDA { v[r] = column(j + r); });
    transpose<A>(v);
    unrolled<n>([&](auto r) HIPNORM_INLINE_LAMBDA {
      if (r < count) narrow_head(rows + r * stride + j, v[r], width);
    });
  }
}

// Where element j of a row of type Stored lies: rows of A are in packet order.
template <class T, class Stored>
HIPNORM_INLINE std::int64_t position(std::int64_t j) {
  using P = Packet<T>;
  if (sizeof(Stored) == sizeof(T)) return j;
  const std::int64_t packet = j - j % P::kElements;
  return packet + P::slot_of_element(static_cast<int>(j - packet));
}
// A parameter in the natural order, 0 past its end.
template <class T, class W>
struct NarrowParameter {
  accumulate_t<T> value[kNarrow] = {};

  NarrowParameter(const void* given, std::int64_t cols, accumulate_t<T> absent) {
    const auto* from = static_cast<const W*>(given);
    for (std::int64_t j = 0; j < cols; ++j) {
      value[j] = given == nullptr ? absent : to_arithmetic(from[position<T, W>(j)]);
    }
  }
};

// The rows of one part, written as they come: each block of rows is one run of memory.
template <class T>
class RowWriter {
 public:
  RowWriter(T* rows, bool streamed) : at_(rows), streamed_(streamed), aligner_(rows) {}
  // Where the next `elements` elements, at most kLanes<A> · kNarrow, are to be written.
  T* next(std::int64_t elements) {
    if (streamed_) return static_cast<T*>(aligner_.next());
    // Lines that are not there when a store wants them hold up the stores behind it.
    const auto bytes = elements * static_cast<std::int64_t>(sizeof(T));
    fetch_bytes(at_ + 2 * elements, bytes);
    return at_;
  }
  void wrote(std::int64_t elements) {
    at_ += elements;
    if (streamed_) aligner_.wrote(elements * static_cast<std::int64_t>(sizeof(T)));
  }
  void finish() {
    if (streamed_) aligner_.finish();
  }

 private:
  static_assert(kLanes<accumulate_t<T>> * kNarrow * sizeof(T) <= Aligner::kBlockBytes);
  T* at_;
  bool streamed_;
  Aligner aligner_;
};

}  // namespace hipnorm::cpu::HIPNORM_ISA
