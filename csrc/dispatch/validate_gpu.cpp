// The GPU's part of validate(): blocks, instances, LDS, clusters.
#include <algorithm>
#include <bit>

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/text.h"
#include "csrc/dispatch/validate.h"
#include "kernels/gpu/columns_layout.h"

namespace hipnorm {
namespace {

using Reason = std::optional<std::string>;

struct Case {
  const Config& config;
  const Problem& problem;
  const Device& device;
  const GpuLimits& limits;
  const GpuKernel& kernel;
  std::string_view name() const { return info(config.variant).name; }
};

// Threads by themselves, and as lanes of a wave.
Reason check_threads(const Case& c) {
  const int wave = c.limits.wave;
  if (c.config.threads % wave != 0) {
    return concat("threads=", c.config.threads, ", but waves of ", c.device.arch, " have ", wave,
                  " lanes");
  }
  if (c.kernel.threads > c.limits.max_threads) {
    return concat("threads=", c.config.threads,
                  c.kernel.threads > c.config.threads ? " and the two waves that serve them" : "",
                  ", but blocks of ", c.device.arch, " have at most ", c.limits.max_threads);
  }
  if (!is_wave_variant(c.config.variant)) return std::nullopt;
  const auto lanes = static_cast<unsigned>(c.kernel.lanes);
  if (c.config.threads % c.config.rows_per_block == 0 && std::has_single_bit(lanes) &&
      c.kernel.lanes <= wave) {
    return std::nullopt;
  }
  return concat("threads=", c.config.threads, ", rows_per_block=", c.config.rows_per_block,
                ", but a row takes a power of two of a wave's ", wave, " lanes");
}

// A row shared by the blocks of a cluster.
Reason check_ring(const Case& c) {
  if (!is_ring_variant(c.config.variant)) return std::nullopt;
  if (!c.device.bulk_copies) {
    return concat(c.name(), " needs bulk copies to LDS, which ", c.device.arch, " does not have");
  }
  if (c.problem.x == DType::f64) return concat(c.name(), " does not take f64");
  if (c.config.split > c.limits.max_cluster) {
    return concat("split=", c.config.split, ", but clusters of ", c.device.arch, " have at most ",
                  c.limits.max_cluster, " blocks");
  }
  // The first blocks take `chunks` packets each.
  const std::int64_t fewest = c.problem.cols * size_of(c.problem.x) / gpu::kPacketBytes;
  if (c.config.split > 1 && (c.config.split - 1) * c.kernel.chunks >= fewest) {
    return concat("split=", c.config.split, ", but of the ", fewest, " packets of ", c.problem.cols,
                  " cols each of the first blocks takes ", c.kernel.chunks,
                  ", and none is left for the last");
  }
  return std::nullopt;
}

// A row shared by blocks that wait for each other through memory.
Reason check_group(const Case& c) {
  if (!c.kernel.cooperative) return std::nullopt;
  if (!c.device.cooperative) {
    return concat(c.name(), " needs cooperative launches, which ", c.device.arch, " does not have");
  }
  if (c.problem.x == DType::f64) return concat(c.name(), " does not take f64");
  if (resident_by_formula(c.kernel, c.problem, c.device, c.limits) == 0) {
    return concat("split=", c.config.split, ", but ", c.device.arch,
                  " does not hold so many blocks");
  }
  if (!gpu::whole_packets(c.problem)) {
    return concat(c.name(), " takes rows of whole packets of 16 bytes, but rows of ",
                  c.problem.cols, " cols are aligned to ", c.problem.alignment);
  }
  if (c.config.split > c.limits.wave) {
    return concat("split=", c.config.split, ", but a wave of ", c.device.arch, " asks for at most ",
                  c.limits.wave, " blocks' sums at once");
  }
  const std::int64_t chunks = gpu::chunks_of_row(c.problem);
  if ((c.config.split - 1) * c.kernel.chunks >= chunks) {
    return concat("split=", c.config.split, ", but of the ", chunks, " packets of ", c.problem.cols,
                  " cols each of the first blocks takes ", c.kernel.chunks,
                  ", and none is left for the last");
  }
  return std::nullopt;
}

Reason check_instance(const Case& c) {
  if (c.kernel.instances.empty()) return std::nullopt;
  const gpu::Instance* instance = c.kernel.instance;
  const std::string_view what = c.kernel.cluster > 1 ? " packets a block" : " packets";
  if (is_ring_variant(c.config.variant)) {
    if (c.limits.bound(c.kernel.instances.front()) == 0) {
      return concat(c.name(), " is not built for ", c.device.arch);
    }
    if (instance != nullptr) return std::nullopt;
    return concat("threads=", c.config.threads, ", split=", c.config.split,
                  ", rows_per_block=", c.kernel.together, ", but no instance holds the ",
                  c.kernel.chunks, what, " of ", c.problem.cols, " cols so");
  }
  if (instance == nullptr) {
    return concat("threads=", c.config.threads, ", but ", c.problem.cols, " cols are ",
                  c.kernel.chunks, what, ", of which ", c.kernel.lanes, " lanes hold at most ",
                  c.kernel.instances.back().vectors * c.kernel.lanes);
  }
  if (c.kernel.packets && c.config.variant == Variant::gpu_backward_row &&
      gpu::keeps_in_lds(instance->vectors, c.problem.x) &&
      c.config.threads != gpu::kThreadsWithLds) {
    return concat("threads=", c.config.threads, ", but with ", instance->vectors,
                  " packets a lane, some of them in LDS, they must be ", gpu::kThreadsWithLds);
  }
  if (c.limits.bound(*instance) == 0) {
    return concat(c.name(), " of ", instance->vectors, " packets a lane is not built for ",
                  c.device.arch);
  }
  if (c.config.threads > c.limits.bound(*instance)) {
    return concat("threads=", c.config.threads, ", but with ", instance->vectors,
                  " packets a lane at most ", c.limits.bound(*instance), " have registers on ",
                  c.device.arch);
  }
  return std::nullopt;
}

Reason check_parts(const Case& c) {
  if (c.config.variant != Variant::gpu_backward_sums_first ||
      gpu::parts_keep_alignment(c.problem, c.config.parts)) {
    return std::nullopt;
  }
  return concat("parts=", c.config.parts, ", but rows aligned to ", c.problem.alignment,
                " bytes need a multiple of ", gpu::shift_period(c.problem));
}

}  // namespace

Reason validate_gpu(const Config& config, const Problem& problem, const Device& device) {
  if (!has_work(problem)) return std::nullopt;
  const GpuLimits limits(device);
  const GpuKernel kernel(config, problem, limits);
  const Case c{config, problem, device, limits, kernel};
  if (auto reason = check_threads(c)) return reason;
  if (auto reason = check_ring(c)) return reason;
  if (auto reason = check_group(c)) return reason;
  if (auto reason = check_instance(c)) return reason;
  if (auto reason = check_parts(c)) return reason;
  if (kernel.lds_bytes > limits.lds_bytes) {
    return concat(to_string(config), " takes ", kernel.lds_bytes, " bytes of LDS a block, but ",
                  device.arch, " has ", limits.lds_bytes);
  }
  return std::nullopt;
}

}  // namespace hipnorm
