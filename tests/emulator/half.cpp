#include "tests/emulator/half.h"

#include <bit>

namespace hipnorm::gpu {

float half_bits_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits} << 16 & 0x80000000;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormal: fraction · 2⁻²⁴, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 31) {
    const std::uint32_t quiet = fraction != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13 | quiet);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t float_to_half_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520, halfway between the largest f16 and 2¹⁶
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2⁻¹⁴, the least normal: count steps of 2⁻²⁴
    // Added to 0.5, whose last bit is worth 2⁻²⁴: the addition rounds to nearest even.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5f);
  } else {
    const std::uint32_t odd = magnitude >> 13 & 1;
    half = (magnitude - 0x38000000 + 0xfff + odd) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace hipnorm::gpu
