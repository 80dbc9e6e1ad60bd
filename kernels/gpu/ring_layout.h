// forward_ring and backward_ring on the host's side: how a row is cut into slices, which instance
// serves a config, and the LDS of a block. Dispatch plans with it, the kernels follow it. No HIP.
//
// Both kernels keep weights (backward: column sums, too) in registers over all rows of a group,
// group g taking rows g, g + groups, g + 2·groups … So plan.groups has to be a multiple of
// shift_period(problem), unless groups ≥ rows (no group has a second row). A group without rows
// writes zeros into its partial row.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gpu/instances.h"

namespace hipnorm::gpu {

// Bytes of a cache line: copies bring whole lines (3–5 % faster than 16-byte pieces of them).
inline constexpr std::int64_t kLineBytes = 128;

// Waves of a block beside those that compute: the loader and the finisher.
inline constexpr int kRingServants = 2;

// Chunks of a row in each block of a cluster; the last blocks may have fewer, or none. Whole lines,
// where that makes the largest slice at most 5 % larger.
constexpr std::int64_t ring_slice(std::int64_t chunks, int split) {
  constexpr std::int64_t kLineChunks = kLineBytes / kPacketBytes;
  const std::int64_t even = (chunks + split - 1) / split;
  return even < 20 * kLineChunks ? even : (even + kLineChunks - 1) / kLineChunks * kLineChunks;
}

constexpr std::span<const Instance> ring_instances(const Problem& problem) {
  if (problem.x == DType::f32) {
    return problem.op != Op::forward ? std::span<const Instance>(kBackwardRingF32)
                                     : kForwardRingF32;
  }
  const bool wide = problem.weight == DType::f32;
  if (problem.op != Op::forward) {
    return wide ? std::span<const Instance>(kBackwardRingWide) : kBackwardRing;
  }
  return wide ? std::span<const Instance>(kForwardRingWide) : kForwardRing;
}

// The launch bound of an instance, without the waves that serve it.
constexpr int max_threads(std::span<const Instance> instances, int vectors) {
  return instance_for(instances, vectors, 1)->max_threads;
}

// Rows of a step whose packets and sums the instance has registers for (backward only; a power of
// two).
constexpr bool ring_takes_rows(int vectors, int rows) { return rows == 1 || vectors * rows <= 4; }

// The instance for `threads` computing threads a block, `rows` rows a step (forward: 1) and `split`
// blocks a row. Null: none.
constexpr const Instance* ring_instance(const Problem& problem, int threads, int rows, int split) {
  const std::int64_t slice = ring_slice(chunks_of_row(problem), split);
  for (const Instance& instance : ring_instances(problem)) {
    if (threads <= instance.max_threads &&
        static_cast<std::int64_t>(instance.vectors) * threads >= slice &&
        ring_takes_rows(instance.vectors, rows)) {
      return &instance;
    }
  }
  return nullptr;
}

struct RingShape {
  bool backward = false;
  std::int64_t chunks = 0;  // of a row at most: chunks_of_row(problem)
  int threads = 0;          // config.threads: those that compute
  int rows = 1;             // of a step: config.rows_per_block, forward 1
  int stages = 0;
  int split = 1;
  int wave = 32;
};

// Bytes, and byte offsets in a block's LDS.
struct RingLayout {
  std::int64_t slice = 0;        // chunks
  std::int64_t row_bytes = 0;    // a slice in whole lines, of one tensor: stage s has row r of x at
                                 // (s·rows + r)·tensors·row_bytes, its dy behind it
  std::int64_t stage_bytes = 0;  // rows × tensors × row_bytes; the stages start at 0
  std::int64_t results = 0;      // stages × rows RowResults
  std::int64_t values = 0;       // stages × rows pairs
  std::int64_t slots = 0;        // 2·stages slots: what each wave of the cluster posts for a step
  std::int64_t slot_bytes = 0;
  std::int64_t counts = 0;    // forward: how many elements each wave of the cluster sums, as pairs
  std::int64_t barriers = 0;  // full[stages], empty[stages], ready[stages], sums[2·stages]
  std::int64_t bytes = 0;
};

inline constexpr std::int64_t kResultBytes = 16;
inline constexpr std::int64_t kPairBytes = 8;

constexpr RingLayout ring_layout(const RingShape& shape) {
  const std::int64_t tensors = shape.backward ? 2 : 1;
  const std::int64_t waves = static_cast<std::int64_t>(shape.split) * (shape.threads / shape.wave);
  const std::int64_t rows = static_cast<std::int64_t>(shape.stages) * shape.rows;
  RingLayout layout;
  layout.slice = ring_slice(shape.chunks, shape.split);
  // A slice starts anywhere in its first line.
  layout.row_bytes = (layout.slice * kPacketBytes + 2 * kLineBytes - 1) / kLineBytes * kLineBytes;
  layout.stage_bytes = shape.rows * tensors * layout.row_bytes;
  layout.results = shape.stages * layout.stage_bytes;
  layout.values = layout.results + rows * kResultBytes;
  layout.slots = (layout.values + rows * kPairBytes + 15) / 16 * 16;
  layout.slot_bytes = (waves * shape.rows * kPairBytes + 15) / 16 * 16;
  layout.counts = layout.slots + 2 * shape.stages * layout.slot_bytes;
  layout.barriers = layout.counts + (shape.backward ? 0 : waves * kPairBytes);
  layout.bytes = layout.barriers + 5 * shape.stages * 8;
  return layout;
}

}  // namespace hipnorm::gpu
