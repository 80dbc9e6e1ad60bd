// How many blocks or clusters of a persistent variant a GPU holds at once.
#pragma once

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::gpu {

// Device::resident_groups of every GPU. The runtime's query takes microseconds; answers are
// remembered. The current device must be `device`.
int resident_groups(const Config& config, const Plan& plan, const Problem& problem,
                    const Device& device);

}  // namespace hipnorm::gpu
