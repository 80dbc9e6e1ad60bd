#include "csrc/dispatch/plan.h"

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/workspace.h"

namespace hipnorm {
namespace {

std::int64_t task_count(const Config& config) {
  switch (info(config.variant).form) {
    case Form::row: return config.parts;
    case Form::split_row: return config.split;
    case Form::two_kernel:
    case Form::sums_first: return static_cast<std::int64_t>(config.parts) * config.split;
  }
  return 1;
}

}  // namespace

void lay_out_workspace(Plan& plan, const Config& config, const Problem& problem,
                       std::int64_t parts) {
  const auto sizes = workspace<std::int64_t>(config, problem, parts);
  plan.partial_rows = partial_rows(parts, problem);
  plan.pitch = sizes.pitch;
  plan.weight_offset = 0;
  plan.bias_offset = plan.weight_offset + sizes.weight;
  plan.sums_offset = plan.bias_offset + sizes.bias;
  plan.dweight_offset = plan.sums_offset + sizes.sums;
  plan.dbias_offset = plan.dweight_offset + sizes.dweight;
  plan.workspace_bytes = plan.dbias_offset + sizes.dbias;
}

Plan plan(const Config& config, const Problem& problem, const Device& device) {
  Plan result;
  if (problem.rows == 0 || problem.cols == 0) return result;
  if (device.kind == DeviceKind::gpu) return plan_gpu(config, problem, device, true);
  result.tasks = task_count(config);
  lay_out_workspace(result, config, problem, config.parts);
  return result;
}

}  // namespace hipnorm
