#include <algorithm>

#include "csrc/dispatch/gpu.h"

namespace hipnorm {

Cost predict_gpu(const Config& config, const Problem& problem, const Device& device) {
  const Plan sizes = plan_gpu(config, problem, device, false);
  Cost cost;
  cost.bytes = static_cast<double>(problem.tensor_bytes()) * (problem.is_backward() ? 3 : 2) +
               static_cast<double>(sizes.workspace_bytes) * 2;
  cost.seconds = cost.bytes / std::max(device.bandwidth, 1e11);
  return cost;
}

}  // namespace hipnorm
