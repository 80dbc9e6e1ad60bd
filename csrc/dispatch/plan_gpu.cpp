// The GPU's plan: blocks, groups that share the rows, LDS.
#include <algorithm>

#include "csrc/dispatch/arithmetic.h"
#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/workspace.h"
#include "kernels/gpu/columns_layout.h"

namespace hipnorm {
namespace {

// The fewest groups that need no more steps each than all resident ones would: none idles in the
// last step, and fewer partial rows are written. Where the period asks for more groups than are
// resident, the others run after them: they do not wait for each other.
std::int64_t group_count(const GpuKernel& kernel, std::int64_t resident, const Device& device) {
  std::int64_t period = kernel.period;
  // As many groups on each die, so that none lies on two; and never more than are resident.
  if (kernel.cooperative) period = resident >= device.dies ? std::max(1, device.dies) : 1;
  const std::int64_t most = std::max(period, resident / period * period);
  if (kernel.units <= std::max(most, resident)) return kernel.units;  // one each
  const std::int64_t steps = ceil_div(ceil_div(kernel.units, most), kernel.together);
  const std::int64_t even = ceil_div(kernel.units, steps * kernel.together);
  return ceil_div(even, period) * period;
}

// Blocks of the main grid of a variant that is not persistent. Those that take rows stride where
// the rows are more than a grid has blocks; the others would need a tensor of 2^45 bytes for that.
std::int64_t block_count(const Config& config, const Problem& problem, const GpuKernel& kernel,
                         const GpuLimits& limits) {
  const auto columns = [&] {
    return gpu::column_strips(config.variant, problem, config.threads) * config.parts;
  };
  switch (config.variant) {
    case Variant::gpu_backward_roles: return gpu::role_blocks(problem, config.threads, limits.wave);
    case Variant::gpu_backward_sums_first: return columns();
    case Variant::gpu_backward_two_kernel:
      if (!problem.grads.dx) return columns();
      break;  // of the kernel that gives dx
    default: break;
  }
  return std::min(kMaxBlocks, kernel.units);
}

}  // namespace

Plan plan_gpu(const Config& config, const Problem& problem, const Device& device, bool ask) {
  Plan result;
  if (!has_work(problem)) return result;
  const GpuLimits limits(device);
  const GpuKernel kernel(config, problem, limits);
  result.threads = kernel.threads;
  result.vectors = kernel.instance == nullptr ? 0 : kernel.instance->vectors;
  result.lds_bytes = kernel.lds_bytes;
  std::int64_t parts = config.parts;
  if (kernel.persistent) {
    const std::int64_t resident = ask && device.resident_groups != nullptr
                                      ? device.resident_groups(config, result, problem, device)
                                      : resident_by_formula(kernel, problem, device, limits);
    result.groups = resident <= 0 ? 0 : group_count(kernel, resident, device);
    result.tasks = result.groups * kernel.cluster;
    parts = result.groups;
  } else {
    result.tasks = block_count(config, problem, kernel, limits);
  }
  lay_out_workspace(result, config, problem, parts);
  return result;
}

}  // namespace hipnorm
