#include "tests/reference/number_format.h"

#include <cmath>
#include <limits>

namespace hipnorm::reference {
namespace {

// Sign, exponent and mantissa of the 16-bit format `f` in one integer.
std::uint16_t encode16(const Format& f, double value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const std::uint32_t infinity = std::uint32_t(f.max_exponent - f.min_exponent + 2)
                                 << f.mantissa_bits;
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | infinity | 1u << (f.mantissa_bits - 1));
  }
  const double magnitude = std::fabs(value);
  if (magnitude >= power_of_two(f.max_exponent) * 2) {
    return static_cast<std::uint16_t>(sign | infinity);
  }
  const int exponent =
      magnitude == 0 ? f.min_exponent : std::max(std::ilogb(magnitude), f.min_exponent);
  // Scaling by a power of two is exact; nearbyint rounds to nearest even. A carry out of the
  // mantissa raises the exponent by one, up to infinity, by plain addition.
  const double quanta = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const std::uint32_t bits = (std::uint32_t(exponent - f.min_exponent) << f.mantissa_bits) +
                             static_cast<std::uint32_t>(quanta);
  return static_cast<std::uint16_t>(sign | bits);
}

template <typename T>
T load_as(const void* array, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array) + index * std::int64_t(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void store_as(void* array, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(array) + index * std::int64_t(sizeof(T)), &value, sizeof(T));
}

// A double beyond the range of float is undefined behaviour to convert: say infinity here.
float to_float(double value) {
  if (std::fabs(value) >= overflow_threshold(DType::f32)) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(value > 0 ? 1 : -1));
  }
  return static_cast<float>(value);
}

}  // namespace

std::uint16_t to_bfloat16(double value) { return encode16(format_of(DType::bf16), value); }
std::uint16_t to_half(double value) { return encode16(format_of(DType::f16), value); }

double load(DType dtype, const void* array, std::int64_t index) {
  switch (dtype) {
    case DType::f16: return from_half(load_as<std::uint16_t>(array, index));
    case DType::bf16: return from_bfloat16(load_as<std::uint16_t>(array, index));
    case DType::f32: return load_as<float>(array, index);
    case DType::f64: return load_as<double>(array, index);
    case DType::none: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void store(DType dtype, void* array, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f16: return store_as(array, index, to_half(value));
    case DType::bf16: return store_as(array, index, to_bfloat16(value));
    case DType::f32: return store_as(array, index, to_float(value));
    case DType::f64: return store_as(array, index, value);
    case DType::none: return;
  }
}

double round_to(DType dtype, double value) {
  double rounded = value;
  store(dtype, &rounded, 0, value);
  return load(dtype, &rounded, 0);
}

}  // namespace hipnorm::reference
