// The configs that a sweep tries.
#pragma once

#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::tune {

// Every variant that serves the problem × the values of its parameters, valid ones only, the one
// with the lowest predicted time first, so that a short budget tries the most promising: what
// dispatch itself would choose from leads the list. At most `most`; those predicted to take more
// than three times the best are left out.
std::vector<Config> search_space(const Problem& problem, const Device& device, std::size_t most);

}  // namespace hipnorm::tune
