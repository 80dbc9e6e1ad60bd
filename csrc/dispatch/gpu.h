// What a GPU variant's kernels are made of: the one description behind the plan, validate() and the
// cost model. Sizes that the kernels fix come from those headers in kernels/gpu/ that know no HIP.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/problem.h"
#include "kernels/gpu/instances.h"

namespace hipnorm {

// Blocks of one launch: every GPU takes 2^31 − 1. A multiple of 16, so that a grid that strides
// over more rows than that keeps each lane's columns (gpu::shift_period is at most 16).
inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 16;

// A device's limits. What it does not know (0), or what is less than any GPU that HIP or CUDA runs
// on has, is replaced by the least that one has.
struct GpuLimits {
  int wave;                     // 32 or 64; 64 where unknown: a multiple of both
  int max_threads;              // of a block
  int max_cluster;              // blocks of a cluster
  int registers;                // of 32 bits, of a compute unit
  std::int64_t lds_bytes;       // of a block
  std::int64_t unit_lds_bytes;  // of a compute unit
  bool amd;                     // which of an instance's launch bounds holds
  explicit GpuLimits(const Device& device);

  // Threads that an instance takes; 0: it is not built for the device.
  int bound(const gpu::Instance& instance) const {
    return amd ? instance.max_threads_on_amd : instance.max_threads;
  }
};

constexpr bool is_wave_variant(Variant variant) {
  return variant == Variant::gpu_forward_wave || variant == Variant::gpu_backward_wave;
}
constexpr bool is_ring_variant(Variant variant) {
  return variant == Variant::gpu_forward_ring || variant == Variant::gpu_backward_ring;
}

// The instances of forward_row or backward_row: AMD has others for rows of whole packets.
std::span<const gpu::Instance> row_instances(Variant variant, const Problem& problem, int stages,
                                             bool amd);

// The main kernel of a config on a problem. Fields of the config may be anything that their limits
// in kernels/variants.h allow.
struct GpuKernel {
  Variant variant;
  bool packets = false;                      // a row kernel for whole packets
  std::span<const gpu::Instance> instances;  // empty: the kernel takes rows of any length
  const gpu::Instance* instance = nullptr;   // the one that runs; null: none holds the row
  std::int64_t chunks = 0;                   // packets of a row that one block takes …
  int lanes = 0;                             // … on so many lanes
  int threads = 0;                           // of a block, those that serve a ring included
  int cluster = 1;                           // blocks that share a row
  std::int64_t lds_bytes = 0;

  bool cooperative = false;  // all blocks of the grid run at the same time
  // Persistent kernels: Plan::groups share `units` (rows, or the rows_per_block rows of a block),
  // group g taking units g, g + groups, …, `together` of them in one step. Where a group takes more
  // than one, groups must be a multiple of `period`, so that a lane's columns stay the same.
  bool persistent = false;
  std::int64_t units = 0;
  int together = 1;
  std::int64_t period = 1;

  GpuKernel(const Config& config, const Problem& problem, const GpuLimits& limits);
};

// Registers that a lane of the kernel is assumed to take.
int registers_of(const GpuKernel& kernel, const Problem& problem, const GpuLimits& limits);

// Groups of a persistent kernel that the device holds at once, by the registers, LDS and threads
// that they take.
std::int64_t resident_by_formula(const GpuKernel& kernel, const Problem& problem,
                                 const Device& device, const GpuLimits& limits);

// plan() on a GPU. `ask`: by Device::resident_groups, where there is one; else by the formula, as
// the cost model does for the many configs that are not going to run.
Plan plan_gpu(const Config& config, const Problem& problem, const Device& device, bool ask);

// predict() on a GPU.
Cost predict_gpu(const Config& config, const Problem& problem, const Device& device);

// The GPU's part of validate(): the problem and each field by itself are known to be good.
std::optional<std::string> validate_gpu(const Config& config, const Problem& problem,
                                        const Device& device);

}  // namespace hipnorm
