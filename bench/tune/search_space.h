// The configs that a sweep tries.
#pragma once

#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::tune {

// The default, then every other config in the order of its predicted time, so that a short budget
// tries the most promising: all variants that serve the problem × the values of their parameters,
// valid ones only. At most `most`, the default counted; those predicted to take more than three
// times as long as the default are left out.
std::vector<Config> search_space(const Problem& problem, const Device& device, std::size_t most);

}  // namespace hipnorm::tune
