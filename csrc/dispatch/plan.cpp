#include "csrc/dispatch/plan.h"

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

Plan plan(const Config& config, const Problem& problem, const Device&) {
  Plan result;
  if (problem.rows == 0 || problem.cols == 0) return result;
  const auto sizes = workspace<std::int64_t>(config, problem);
  result.tasks = task_count(config);
  result.partial_rows = partial_rows(config, problem);
  result.pitch = sizes.pitch;
  result.weight_offset = 0;
  result.bias_offset = result.weight_offset + sizes.weight;
  result.sums_offset = result.bias_offset + sizes.bias;
  result.dweight_offset = result.sums_offset + sizes.sums;
  result.dbias_offset = result.dweight_offset + sizes.dweight;
  result.workspace_bytes = result.dbias_offset + sizes.dbias;
  return result;
}

}  // namespace hipnorm
