// The GPU configs worth a try.
#pragma once

#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// Valid ones only. The first of equals is the one to prefer.
std::vector<Config> gpu_candidates(const Problem& problem, const Device& device);

// A config of the variant that takes every problem and device: gpu_forward_stream,
// gpu_backward_sums_first.
Config plainest_gpu(const Problem& problem, const Device& device);

}  // namespace hipnorm
