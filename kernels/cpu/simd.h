// Vectors of one instruction set. Compiled once per set, each time inside namespace
// hipnorm::cpu::HIPNORM_ISA, so that no inline function of one set can stand in for another's.
//
// Compiler vectors carry the plain arithmetic (any target, NEON included); intrinsics stand only
// where the language has no word: fma, f16 conversion, non-temporal stores.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if !defined(HIPNORM_ISA) || !defined(HIPNORM_VEC_BYTES)
#error "include through one of the isa_*.cpp files: they name the instruction set"
#endif

#define HIPNORM_INLINE inline __attribute__((always_inline))
#define HIPNORM_INLINE_LAMBDA __attribute__((always_inline))

namespace hipnorm::cpu::HIPNORM_ISA {

inline constexpr int kVecBytes = HIPNORM_VEC_BYTES;

typedef float F32x __attribute__((vector_size(HIPNORM_VEC_BYTES)));
typedef double F64x __attribute__((vector_size(HIPNORM_VEC_BYTES)));
typedef std::uint32_t U32x __attribute__((vector_size(HIPNORM_VEC_BYTES)));

// A is the arithmetic type: float or double.
template <class A>
struct Simd;
template <>
struct Simd<float> {
  using V = F32x;
};
template <>
struct Simd<double> {
  using V = F64x;
};
template <class A>
inline constexpr int kLanes = kVecBytes / static_cast<int>(sizeof(A));

template <class A>
HIPNORM_INLINE typename Simd<A>::V load(const A* p) {
  typename Simd<A>::V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class A>
HIPNORM_INLINE void store(A* p, typename Simd<A>::V v) {
  std::memcpy(p, &v, sizeof v);
}
template <class A>
HIPNORM_INLINE typename Simd<A>::V splat(A a) {
  return a - typename Simd<A>::V{};  // a − 0 keeps −0 and NaN
}

// a·b + c, one rounding where the instruction set has it.
HIPNORM_INLINE F32x fma(F32x a, F32x b, F32x c) {
#if HIPNORM_VEC_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#elif HIPNORM_VEC_BYTES == 32
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
HIPNORM_INLINE F64x fma(F64x a, F64x b, F64x c) {
#if HIPNORM_VEC_BYTES == 64
  return _mm512_fmadd_pd(a, b, c);
#elif HIPNORM_VEC_BYTES == 32
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

HIPNORM_INLINE F64x root(F64x a) {
#if HIPNORM_VEC_BYTES == 64
  return _mm512_sqrt_pd(a);
#elif HIPNORM_VEC_BYTES == 32
  return _mm256_sqrt_pd(a);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(a);
#else
  for (int i = 0; i < kLanes<double>; ++i) a[i] = __builtin_sqrt(a[i]);
  return a;
#endif
}

// Sum of `n` lanes, as a fixed binary tree: n equal lanes give exactly n times their value. By
// halves, which stay in registers (backward f32 of 32 columns: 0.30 ns an element, 0.36 with the
// lanes in memory).
template <class A, int n>
HIPNORM_INLINE A sum_of_lanes(const void* lanes) {
  if constexpr (n == 1) {
    A a;
    std::memcpy(&a, lanes, sizeof a);
    return a;
  } else {
    typedef A Half __attribute__((vector_size(n / 2 * sizeof(A))));
    Half low, high;
    std::memcpy(&low, lanes, sizeof low);
    std::memcpy(&high, static_cast<const char*>(lanes) + sizeof low, sizeof high);
    const Half both = low + high;
    return sum_of_lanes<A, n / 2>(&both);
  }
}
template <class A>
HIPNORM_INLINE A sum(typename Simd<A>::V v) {
  return sum_of_lanes<A, kLanes<A>>(&v);
}

// Writes past the caches; `p` must be a multiple of kVecBytes. fence() orders these stores before
// whatever another thread does after this task.
HIPNORM_INLINE void stream(void* p, U32x v) {
#if HIPNORM_VEC_BYTES == 64
  _mm512_stream_si512(static_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif HIPNORM_VEC_BYTES == 32
  _mm256_stream_si256(static_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
#else
  std::memcpy(p, &v, sizeof v);
#endif
}
HIPNORM_INLINE void fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Calls f(0), f(1), … f(n − 1), each with a constant. An array indexed so stays in registers; by a
// loop, which the compiler unrolls too late for that, it may lie in memory (backward's sums of four
// rows did, and took twice the time).
template <int i>
struct Index {
  constexpr operator int() const { return i; }
};
template <int n, int i = 0, class F>
HIPNORM_INLINE void unrolled(const F& f) {
  if constexpr (i < n) {
    f(Index<i>{});
    unrolled<n, i + 1>(f);
  }
}

// Fetches `count` cache lines from `p` on into L2, not L1, where the row in work lives. Any address
// is allowed.
template <int count>
HIPNORM_INLINE void fetch_lines(const void* p) {
  for (int i = 0; i < count; ++i) __builtin_prefetch(static_cast<const char*>(p) + i * 64, 0, 2);
}
// Likewise the lines of `bytes` bytes, into L1: what is read or written next.
HIPNORM_INLINE void fetch_bytes(const void* p, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(p) + i, 0, 3);
  }
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
