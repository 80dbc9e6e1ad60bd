// The sum of n integers by one block, in a .hip file: what hipnorm_emulate() compiles.
#pragma once

#include <cstdint>

#include <hip/hip_runtime.h>

namespace hipnorm::testing {

hipError_t block_sum(const std::int64_t* values, std::int64_t n, std::int64_t* sum, int threads);

}  // namespace hipnorm::testing
