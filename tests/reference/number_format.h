// The floating-point formats, in scalar code of their own: exact conversion to double, correct
// rounding from it, and the spacing of representable values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "csrc/dispatch/problem.h"

namespace hipnorm::reference {

struct Format {
  int mantissa_bits;  // stored ones
  int min_exponent;   // of the smallest normal number, 2^min_exponent
  int max_exponent;   // of the largest finite number
};
constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {10, -14, 15};
    case DType::bf16: return {7, -126, 127};
    case DType::f32: return {23, -126, 127};
    case DType::f64:
    case DType::none: break;
  }
  return {52, -1022, 1023};
}

// 2^exponent, exponent in [-1074, 1023].
constexpr double power_of_two(int exponent) {
  return exponent >= -1022 ? std::bit_cast<double>(std::uint64_t(exponent + 1023) << 52)
                           : std::bit_cast<double>(std::uint64_t{1} << (exponent + 1074));
}

// Half of the distance from 1 to the next number above: a correctly rounded operation has at most
// this relative error. f32: 2⁻²⁴.
constexpr double unit_roundoff(DType dtype) {
  return power_of_two(-format_of(dtype).mantissa_bits - 1);
}
// The smallest positive number, a subnormal: the spacing around 0.
constexpr double smallest_subnormal(DType dtype) {
  return power_of_two(format_of(dtype).min_exponent - format_of(dtype).mantissa_bits);
}
// From here on correct rounding gives infinity: the largest finite number and half a spacing.
constexpr double overflow_threshold(DType dtype) {
  const Format f = format_of(dtype);
  return power_of_two(f.max_exponent) * (2 - power_of_two(-f.mantissa_bits - 1));
}
constexpr double largest_finite(DType dtype) {
  const Format f = format_of(dtype);
  return power_of_two(f.max_exponent) * (2 - power_of_two(-f.mantissa_bits));
}

// Spacing of a format's numbers at |value|, without branches: one call per judged element.
// `value` must be finite.
class Spacing {
 public:
  explicit constexpr Spacing(DType dtype)
      : smallest_normal_(power_of_two(format_of(dtype).min_exponent)),
        scale_(power_of_two(-format_of(dtype).mantissa_bits)) {}
  double operator()(double value) const {
    constexpr std::uint64_t kExponent = 0x7ff0'0000'0000'0000;
    const double binade = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & kExponent);
    return std::max(binade, smallest_normal_) * scale_;
  }

 private:
  double smallest_normal_;
  double scale_;
};
inline double ulp(DType dtype, double value) { return Spacing(dtype)(value); }

inline double from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
inline double from_half(std::uint16_t bits) {
  // Exponent and mantissa, put where a float has them, stand for the value times 2^-112, subnormals
  // included. The top exponent (Inf, NaN) arrives as 65536 and more.
  float value = std::bit_cast<float>(std::uint32_t(bits & 0x7fff) << 13) * 0x1p112f;
  if (value >= 65536.0f) {
    value = std::bit_cast<float>(0x7f80'0000u | std::uint32_t(bits & 0x3ff) << 13);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// Round to nearest, ties to even; beyond the range to infinity; NaN stays NaN.
std::uint16_t to_bfloat16(double value);
std::uint16_t to_half(double value);

// Element `index` of an array of `dtype`. Conversion to double is exact, from double correctly
// rounded. The array may lie at any address.
double load(DType dtype, const void* array, std::int64_t index);
void store(DType dtype, void* array, std::int64_t index, double value);
// The nearest number that the format has.
double round_to(DType dtype, double value);

}  // namespace hipnorm::reference
