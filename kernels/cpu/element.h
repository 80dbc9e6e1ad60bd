// Element types of tensors and their scalar conversions.
#pragma once

#include <cstdint>
#include <cstring>

namespace hipnorm::cpu {

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

template <class T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};
// float; double for double.
template <class T>
using accumulate_t = typename Accumulate<T>::type;

template <class A>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float largest = __FLT_MAX__;
};
template <>
struct Limits<double> {
  static constexpr double largest = __DBL_MAX__;
};

// static: each unit keeps its own copy, compiled for its own instruction set.
static inline float to_arithmetic(float x) { return x; }
static inline double to_arithmetic(double x) { return x; }
static inline float to_arithmetic(bf16 x) {
  const std::uint32_t u = std::uint32_t{x.bits} << 16;
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}
static inline float to_arithmetic(f16 x) {
  _Float16 h;
  std::memcpy(&h, &x, sizeof h);
  return static_cast<float>(h);
}

// Round to nearest even; NaN stays NaN.
template <class T>
static inline T from_arithmetic(accumulate_t<T> x) {
  if constexpr (sizeof(T) == sizeof(x)) {
    return x;
  } else {
    T out;
    if constexpr (__is_same(T, bf16)) {
      std::uint32_t u;
      std::memcpy(&u, &x, sizeof u);
      out.bits =
          static_cast<std::uint16_t>(x != x ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    } else {
      const auto h = static_cast<_Float16>(x);
      std::memcpy(&out, &h, sizeof out);
    }
    return out;
  }
}

}  // namespace hipnorm::cpu
