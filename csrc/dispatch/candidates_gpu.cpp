#include "csrc/dispatch/candidates_gpu.h"

#include <algorithm>

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

}  // namespace

std::vector<Config> gpu_candidates(const Problem& problem, const Device& device) {
  const GpuLimits limits(device);
  std::vector<Config> list;
  const auto add = [&](const Config& config) {
    if (!validate(config, problem, device)) list.push_back(config);
  };
  for (std::size_t i = 0; i < variants().size(); ++i) {
    const VariantInfo& variant = variants()[i];
    if (variant.kind != DeviceKind::gpu || !serves(variant, problem.op)) continue;
    Config config{.variant = static_cast<Variant>(i)};
    for (const ConfigField& field : kConfigFields) {
      config.*field.value = (variant.*field.limits).low;
    }
    for (int threads = limits.wave; threads <= variant.threads.high; threads += limits.wave) {
      config.threads = threads;
      add(config);
    }
  }
  if (list.empty()) {
    const Config config = plainest_gpu(problem, device);
    if (!validate(config, problem, device)) list.push_back(config);
  }
  return list;
}

Config plainest_gpu(const Problem& problem, const Device&) {
  const bool forward = problem.op == Op::forward;
  Config config{.variant =
                    forward ? Variant::gpu_forward_stream : Variant::gpu_backward_sums_first};
  config.threads = 256;
  // Rows of a part have one alignment.
  if (!forward) {
    config.parts = static_cast<int>(std::clamp<std::int64_t>(
        gpu::shift_period(problem), 1, std::max<std::int64_t>(1, problem.rows)));
  }
  return config;
}

}  // namespace hipnorm
