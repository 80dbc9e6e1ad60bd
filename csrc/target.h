// Where a call runs and with which config: dispatch's answers in torch's terms. What dispatch
// refuses with std::invalid_argument becomes a c10::ValueError (ValueError in Python), the message
// kept.
#pragma once

#include <c10/core/Device.h>

#include "csrc/dispatch/device.h"
#include "csrc/dispatch/select.h"
#include "kernels/launch.h"

namespace hipnorm {

struct Target {
  const Device& device;
  ParallelFor parallel_for = nullptr;  // CPU
  void* stream = nullptr;              // GPU: the current one
};

// For the CPU: as many threads as torch would use in this place; for a GPU: torch's current stream.
// Throws c10::Error for a device that this build has no kernels for.
Target target_of(c10::Device device);

// select(): forced, else the table, else the default. `device` is the current one: the plan of a
// GPU variant may ask its runtime.
Selection selection_for(const Problem& problem, const Device& device);

}  // namespace hipnorm
