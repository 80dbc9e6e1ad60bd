// Conversions between f32 and the bits of f16, without F16C.
#pragma once

#include <cstdint>

namespace hipnorm::gpu {

float half_bits_to_float(std::uint16_t bits);
// To the nearest, ties to even. Overflow gives Inf; a NaN keeps its sign and its upper bits and
// becomes quiet, as vcvtps2ph and the GPUs do it.
std::uint16_t float_to_half_bits(float value);

}  // namespace hipnorm::gpu
