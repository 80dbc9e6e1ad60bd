#include "csrc/dispatch/gpu.h"

#include <algorithm>

#include "csrc/dispatch/arithmetic.h"
#include "kernels/gpu/columns_layout.h"
#include "kernels/gpu/group_layout.h"
#include "kernels/gpu/ring_layout.h"

namespace hipnorm {
namespace {

using gpu::Instance;

// Packets of a row that fits in no LDS and no registers: enough to say so.
constexpr std::int64_t kEndlessRow = std::int64_t{1} << 40;

// Those with which a row's packets are found by instance_for; empty for the others.
std::span<const Instance> instances_of(const Config& config, const Problem& problem, bool amd) {
  switch (config.variant) {
    case Variant::gpu_forward_wave: return gpu::built_for(gpu::kForwardWave, problem.x);
    case Variant::gpu_backward_wave: return gpu::built_for(gpu::kBackwardWave, problem.x);
    case Variant::gpu_forward_row:
    case Variant::gpu_backward_row:
      return row_instances(config.variant, problem, config.stages, amd);
    case Variant::gpu_backward_two_kernel:  // whose row kernel it is
      if (problem.grads.dx) return gpu::built_for(gpu::kBackwardRowDx, problem.x);
      return {};
    default: return {};
  }
}

}  // namespace

std::span<const Instance> row_instances(Variant variant, const Problem& problem, int stages,
                                        bool amd) {
  const bool packets = gpu::takes_packets(problem, stages, amd);
  if (variant == Variant::gpu_forward_row) {
    return packets ? gpu::kForwardPackets : gpu::built_for(gpu::kForwardRow, problem.x);
  }
  if (!packets) return gpu::built_for(gpu::kBackwardRow, problem.x);
  if (problem.x == DType::f32) return gpu::kBackwardPacketsF32;
  return gpu::kBackwardPackets;
}

GpuLimits::GpuLimits(const Device& device)
    : wave(device.wave_size == 32 ? 32 : 64),
      max_threads(std::max(device.max_threads, 256)),
      max_cluster(std::max(device.max_cluster, 1)),
      registers(std::max(device.registers, 65536)),
      lds_bytes(std::max<std::int64_t>(device.lds_bytes, 32 * 1024)),
      unit_lds_bytes(std::max(device.unit_lds_bytes, lds_bytes)),
      amd(gpu::is_amd(device)) {}

GpuKernel::GpuKernel(const Config& config, const Problem& problem, const GpuLimits& limits)
    : variant(config.variant),
      packets(gpu::takes_packets(problem, config.stages, limits.amd)),
      instances(instances_of(config, problem, limits.amd)),
      chunks(gpu::chunks_of_row(problem)),
      lanes(config.threads),
      threads(config.threads),
      units(problem.rows),
      period(gpu::shift_period(problem)) {
  if (is_wave_variant(config.variant)) lanes = config.threads / config.rows_per_block;
  if (!instances.empty()) instance = gpu::instance_for(instances, chunks, std::max(1, lanes));
  switch (config.variant) {
    case Variant::gpu_forward_row: persistent = config.stages > 1; [[fallthrough]];
    case Variant::gpu_forward_stream: lds_bytes = gpu::kRowLdsBytes; break;
    case Variant::gpu_backward_row:
      persistent = true;
      lds_bytes = gpu::kRowLdsBytes;
      if (packets && instance != nullptr) {
        lds_bytes += gpu::backward_packets_lds_bytes(instance->vectors, problem.x, problem.weight);
      }
      break;
    case Variant::gpu_forward_wave:
    case Variant::gpu_backward_wave:
      persistent = problem.is_backward();
      units = ceil_div(problem.rows, config.rows_per_block);
      // Both are powers of two where the config is valid.
      period = std::max<std::int64_t>(1, period / config.rows_per_block);
      if (persistent && instance != nullptr) {
        lds_bytes = gpu::backward_wave_lds_bytes(threads, instance->vectors, problem.x);
      }
      break;
    case Variant::gpu_forward_ring:
    case Variant::gpu_backward_ring: {
      persistent = true;
      together = std::max(1, config.rows_per_block);
      cluster = config.split;
      threads += gpu::kRingServants * limits.wave;
      const auto layout = gpu::ring_layout({.backward = problem.is_backward(),
                                            .chunks = std::min(chunks, kEndlessRow),
                                            .threads = config.threads,
                                            .rows = together,
                                            .stages = config.stages,
                                            .split = config.split,
                                            .wave = limits.wave});
      chunks = gpu::ring_slice(chunks, config.split);
      lds_bytes = layout.bytes;
      instances = gpu::ring_instances(problem);
      instance = gpu::ring_instance(problem, config.threads, together, config.split);
      break;
    }
    case Variant::gpu_backward_group: {
      // A row's slice on one wave; the waves of a block take rows of their own.
      persistent = cooperative = true;
      cluster = config.split;
      const int waves = std::max(1, config.threads / limits.wave);
      units = ceil_div(problem.rows, waves);
      period = 1;  // rows are aligned
      lanes = limits.wave;
      chunks = gpu::group_slice(std::min(chunks, kEndlessRow), config.split);
      instances = gpu::group_instances(problem.x);
      instance = gpu::instance_for(instances, chunks, lanes);
      if (instance != nullptr) {
        lds_bytes = gpu::group_lds_bytes(threads, instance->vectors, limits.wave, problem.x,
                                         problem.weight);
      }
      break;
    }
    case Variant::gpu_backward_two_kernel:
      lds_bytes = std::max(gpu::column_lds_bytes(problem, config.threads), gpu::kRowLdsBytes);
      break;
    case Variant::gpu_backward_sums_first:
    case Variant::gpu_backward_roles:
      lds_bytes = gpu::role_lds_bytes(problem, config.threads);
      break;
    default: break;
  }
}

// About as many as the compilers report for 16-bit elements on sm_90, and no fewer than clang 22
// reports on CDNA (tests/rocm compares): the lane's packets, the next row's, weights, column sums.
// Elements of f32 and f64 fill a packet with half of the sums.
int registers_of(const GpuKernel& kernel, const Problem& problem, const GpuLimits& limits) {
  const int vectors = kernel.instance == nullptr ? 1 : kernel.instance->vectors;
  const bool wide = size_of(problem.x) > 2;
  int count = 0;
  switch (kernel.variant) {
    case Variant::gpu_forward_wave:
    case Variant::gpu_forward_row:
      if (kernel.packets) {
        count = 33 + 15 * std::min(vectors, 4) + 4 * std::max(0, vectors - 4) +
                (problem.weight == problem.x ? 0 : 8 * std::min(vectors, 4));
        break;
      }
      count = limits.amd    ? (wide ? 48 + 20 * vectors : 72 + 24 * vectors)
              : vectors > 4 ? 40 + 11 * vectors
                            : (vectors > 1 ? 64 : 48);
      break;
    case Variant::gpu_forward_ring: count = 50 + 16 * vectors; break;
    case Variant::gpu_forward_stream: count = 64; break;
    case Variant::gpu_backward_wave:
      count = limits.amd ? (wide ? 40 + 35 * vectors : 58 + 64 * vectors)
                         : 35 + (wide ? 36 : 60) * vectors;
      break;
    case Variant::gpu_backward_row:
      if (kernel.packets) {
        // Beyond that, what is in LDS takes none.
        if (gpu::keeps_in_lds(vectors, problem.x)) {
          count = 256;
          break;
        }
        count = wide ? 24 + 26 * vectors : 20 + (problem.weight == problem.x ? 36 : 40) * vectors;
        break;
      }
      count = limits.amd ? (wide ? 30 + 33 * vectors : 40 + 54 * vectors)
                         : 35 + (wide ? 36 : 60) * vectors;
      break;
    case Variant::gpu_backward_ring: count = 40 + (wide ? 24 : 44) * vectors; break;
    case Variant::gpu_backward_group:
      count = wide ? 34 + 34 * vectors : limits.amd ? 40 + 50 * vectors : 34 + 46 * vectors;
      break;
    case Variant::gpu_backward_two_kernel: count = 48 + 12 * vectors; break;
    case Variant::gpu_backward_sums_first: count = 128; break;
    default: count = 96; break;  // backward_roles
  }
  // No more than its launch bound leaves.
  const int bound =
      kernel.instance == nullptr ? gpu::kMaxColumnThreads : limits.bound(*kernel.instance);
  const int servants = is_ring_variant(kernel.variant) ? gpu::kRingServants * limits.wave : 0;
  const int threads = std::max(1, bound) + servants;
  return std::clamp(std::min((count + 7) / 8 * 8, limits.registers / threads / 8 * 8), 16,
                    limits.amd ? 512 : 255);
}

std::int64_t resident_by_formula(const GpuKernel& kernel, const Problem& problem,
                                 const Device& device, const GpuLimits& limits) {
  constexpr std::int64_t kUnitThreads = 2048, kUnitBlocks = 32;
  const std::int64_t threads = std::max(1, kernel.threads);
  const std::int64_t registers = threads * registers_of(kernel, problem, limits);
  // NVIDIA keeps 1 KB of LDS for itself in each block.
  const std::int64_t lds = std::max<std::int64_t>(1, kernel.lds_bytes + (limits.amd ? 0 : 1024));
  const std::int64_t blocks = std::max<std::int64_t>(
      1, std::min({kUnitThreads / threads, kUnitBlocks, limits.unit_lds_bytes / lds,
                   limits.registers / registers}));
  const std::int64_t compute_units = std::clamp(device.compute_units, 1, 1 << 16);
  if (kernel.cluster == 1) return compute_units * blocks;
  if (kernel.cooperative) return compute_units * blocks / kernel.cluster;
  // Clusters lie within a part of the chip (GPC) whose units they do not divide: an H200 of 132
  // units holds 66 of 2, 39 of 3, 30 of 4, 15 of 8 and 7 of 16.
  const std::int64_t usable = kernel.cluster == 2 ? compute_units : compute_units * 10 / 11;
  return std::max<std::int64_t>(1, usable * blocks / kernel.cluster);
}

}  // namespace hipnorm
