// Packets: one vector register's worth of elements of a tensor, as the arithmetic type.
//
// A packet of f32 or f64 is one vector, of a 16-bit type two. Parameters (weight, bias) and
// accumulators (dW, dB) lie in memory in the same order as the vectors of a packet, so that no
// lane ever has to move:
//   f32, f64, f16  slot k·lanes + j holds element k·lanes + j
//   bf16           slot k·lanes + j holds element 2j + k: a 32-bit lane holds two neighbours, and
//                  shift or mask turns each half into an f32 (one instruction; a widening move
//                  across lanes and the narrowing one on the way back cost five)
#pragma once

#include "kernels/cpu/element.h"
#include "kernels/cpu/simd.h"

namespace hipnorm::cpu::HIPNORM_ISA {

template <class T>
struct Packet {  // f32, f64
  using A = T;
  using V = typename Simd<A>::V;
  static constexpr int kVectors = 1;
  static constexpr int kElements = kLanes<A>;
  static constexpr int element_of_slot(int slot) { return slot; }
  static constexpr int slot_of_element(int element) { return element; }

  V v[1];

  static HIPNORM_INLINE Packet load(const T* p) { return {{HIPNORM_ISA::load<T>(p)}}; }
  HIPNORM_INLINE U32x bits() const { return reinterpret_cast<U32x>(v[0]); }
};

template <>
struct Packet<bf16> {
  using A = float;
  using V = F32x;
  static constexpr int kVectors = 2;
  static constexpr int kElements = 2 * kLanes<float>;
  static constexpr int element_of_slot(int slot) {
    return 2 * (slot % kLanes<float>)+slot / kLanes<float>;
  }
  static constexpr int slot_of_element(int element) {
    return element % 2 * kLanes<float> + element / 2;
  }

  V v[2];

  static HIPNORM_INLINE Packet load(const bf16* p) {
    U32x u;
    std::memcpy(&u, p, sizeof u);
    return {{reinterpret_cast<V>(u << 16), reinterpret_cast<V>(u & 0xffff0000u)}};
  }
  // Round to nearest even: half a bf16 ulp less one, plus the bit that decides a tie, carries into
  // the upper half. Inf stays Inf. A NaN stays NaN as long as its low half is not all ones, which
  // neither arithmetic nor a bf16 input makes; f32 parameters are cleaned when they are loaded.
  static HIPNORM_INLINE U32x round(V f) {
    const U32x u = reinterpret_cast<U32x>(f);
    return u + 0x7fffu + ((u >> 16) & 1u);
  }
  HIPNORM_INLINE U32x bits() const { return (round(v[0]) >> 16) | (round(v[1]) & 0xffff0000u); }
};

#if HIPNORM_VEC_BYTES == 16 && defined(__SSE2__)
// Conversions of f16 without F16C, which is no part of SSE2: the compiler would call a function for
// each element. One half in each 32-bit lane, its upper bits 0. They are right whatever becomes of
// f32 subnormals (at::set_flush_denormal). A packet's are a call: in line they would be half of the
// code of this instruction set.
#define HIPNORM_INLINE_HALF inline __attribute__((noinline))
typedef std::int32_t I32x __attribute__((vector_size(HIPNORM_VEC_BYTES)));
HIPNORM_INLINE I32x choose(I32x mask, I32x yes, I32x no) { return (mask & yes) | (~mask & no); }

inline constexpr std::int32_t kBiasShift = 112 << 23;  // of exponents: 127 − 15
HIPNORM_INLINE F32x float_of_half(I32x half) {
  const I32x magnitude = half & 0x7fff;
  const I32x normal = (magnitude << 13) + kBiasShift + ((magnitude >= 0x7c00) & kBiasShift);
  const F32x subnormal = __builtin_convertvector(magnitude, F32x) * 0x1p-24f;
  const I32x bits = choose(magnitude < 0x400, reinterpret_cast<I32x>(subnormal), normal);
  return reinterpret_cast<F32x>(bits | (half & 0x8000) << 16);
}
// To nearest even: for normal results as for bf16, where the carry of the largest makes Inf; for
// subnormal ones by adding 0.5, whose last place is theirs.
HIPNORM_INLINE I32x half_of_float(F32x f) {
  const I32x bits = reinterpret_cast<I32x>(f), magnitude = bits & 0x7fffffff;
  const I32x normal = (magnitude - kBiasShift + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const F32x shifted = reinterpret_cast<F32x>(magnitude) + 0.5f;
  const I32x subnormal = reinterpret_cast<I32x>(shifted) - 0x3f000000;
  const I32x finite = choose(magnitude < 0x38800000, subnormal, normal);
  const I32x infinite = 0x7c00 | ((magnitude > 0x7f800000) & 0x200);
  return choose(magnitude >= 0x47800000, infinite, finite) | ((bits >> 16) & 0x8000);
}
#else
#define HIPNORM_INLINE_HALF HIPNORM_INLINE
#endif

template <>
struct Packet<f16> {
  using A = float;
  using V = F32x;
  static constexpr int kVectors = 2;
  static constexpr int kElements = 2 * kLanes<float>;
  static constexpr int element_of_slot(int slot) { return slot; }
  static constexpr int slot_of_element(int element) { return element; }

  V v[2];

  static HIPNORM_INLINE_HALF Packet load(const f16* p) {
#if HIPNORM_VEC_BYTES == 64
    const auto* q = reinterpret_cast<const __m256i*>(p);
    return {{ _mm512_cvtph_ps(_mm256_loadu_si256(q)), _mm512_cvtph_ps(_mm256_loadu_si256(q + 1)) }};
#elif HIPNORM_VEC_BYTES == 32
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {{ _mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1)) }};
#elif defined(__SSE2__)
    const __m128i u = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i zero = _mm_setzero_si128();
    return {
        { float_of_half(reinterpret_cast<I32x>(_mm_unpacklo_epi16(u, zero))),
          float_of_half(reinterpret_cast<I32x>(_mm_unpackhi_epi16(u, zero))) }};
#else
    Packet packet;
    for (int i = 0; i < kElements; ++i) {
      packet.v[i / kLanes<float>][i % kLanes<float>] = to_arithmetic(p[i]);
    }
    return packet;
#endif
  }
  HIPNORM_INLINE_HALF U32x bits() const {
#if HIPNORM_VEC_BYTES == 64
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return reinterpret_cast<U32x>(
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(v[0], kNearest)),
                           _mm512_cvtps_ph(v[1], kNearest), 1));
#elif HIPNORM_VEC_BYTES == 32
    return reinterpret_cast<U32x>(
        _mm256_set_m128i(_mm256_cvtps_ph(v[1], _MM_FROUND_TO_NEAREST_INT),
                         _mm256_cvtps_ph(v[0], _MM_FROUND_TO_NEAREST_INT)));
#elif defined(__SSE2__)
    // The pack saturates signed values: halves as those.
    const auto half = [](V f) HIPNORM_INLINE_LAMBDA {
      return reinterpret_cast<__m128i>((half_of_float(f) << 16) >> 16);
    };
    return reinterpret_cast<U32x>(_mm_packs_epi32(half(v[0]), half(v[1])));
#else
    f16 out[kElements];
    for (int i = 0; i < kElements; ++i) {
      out[i] = from_arithmetic<f16>(v[i / kLanes<float>][i % kLanes<float>]);
    }
    U32x u;
    std::memcpy(&u, out, sizeof u);
    return u;
#endif
  }
};

// Four cache lines: the step of the loops over a row, in elements. In each step they fetch lines of
// the next row, and hold their results back to store them in one burst: reads and writes of memory
// alternate less often.
template <class T>
inline constexpr std::int64_t kStep = 256 / static_cast<std::int64_t>(sizeof(T));

// The first `count` of less than a packet's elements: copied as a sum of powers of two, or under a
// mask. (A memcpy of run-time size is a call: at N = 31 it took most of the time.)
template <class T, int size = Packet<T>::kElements / 2>
HIPNORM_INLINE void copy_head(T* to, const T* from, std::int64_t count) {
  if constexpr (size > 0) {
    if ((count & size) != 0) {
      std::memcpy(to, from, size * sizeof(T));
      to += size;
      from += size;
    }
    copy_head<T, size / 2>(to, from, count);
  }
}

// The first `count` elements at `p`, the rest `fill`.
template <class T>
HIPNORM_INLINE Packet<T> load_head(const T* p, std::int64_t count, T fill) {
  T buffer[Packet<T>::kElements];
  for (T& element : buffer) element = fill;
#if HIPNORM_VEC_BYTES == 64
  __m512i v;
  std::memcpy(&v, buffer, sizeof v);
  if constexpr (sizeof(T) == 2) {
    v = _mm512_mask_loadu_epi16(v, (1u << count) - 1, p);
  } else if constexpr (sizeof(T) == 4) {
    v = _mm512_mask_loadu_epi32(v, static_cast<__mmask16>((1u << count) - 1), p);
  } else {
    v = _mm512_mask_loadu_epi64(v, static_cast<__mmask8>((1u << count) - 1), p);
  }
  std::memcpy(buffer, &v, sizeof v);
#else
  copy_head(static_cast<T*>(buffer), p, count);
#endif
  return Packet<T>::load(buffer);
}
template <class T>
HIPNORM_INLINE void store(T* p, const Packet<T>& packet) {
  const U32x u = packet.bits();
  std::memcpy(p, &u, sizeof u);
}
template <class T>
HIPNORM_INLINE void store_head(T* p, const Packet<T>& packet, std::int64_t count) {
#if HIPNORM_VEC_BYTES == 64
  const __m512i v = reinterpret_cast<__m512i>(packet.bits());
  if constexpr (sizeof(T) == 2) {
    _mm512_mask_storeu_epi16(p, (1u << count) - 1, v);
  } else if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_epi32(p, static_cast<__mmask16>((1u << count) - 1), v);
  } else {
    _mm512_mask_storeu_epi64(p, static_cast<__mmask8>((1u << count) - 1), v);
  }
#else
  T buffer[Packet<T>::kElements];
  store(static_cast<T*>(buffer), packet);
  copy_head(p, static_cast<const T*>(buffer), count);
#endif
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
