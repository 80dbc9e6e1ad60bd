// plan(): from a config and a problem to sizes. The one place that computes them: csrc allocates by
// it, kernels launch by it, the cost model and `explain` predict by it.
#pragma once

#include <cstdint>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// Rows are dealt out evenly to `parts`, and columns, in groups of 64 elements, to `split` strips:
// sizes differ by at most one row or group, and validate() sees to it that none is empty. Where M
// or N is 0 nothing runs, and every number here is 0; on a GPU also where no gradient is asked for.
struct Plan {
  // CPU: tasks of the main parallel_for: parts (row), split (split_row), parts × split (the column
  // kernel of two_kernel, whose row kernel runs `parts` tasks; the second phase of sums_first,
  // whose first runs `split`). GPU: blocks of the grid; of two_kernel's the one that gives dx,
  // where it is asked for, else the one that reduces columns; of sums_first's the second. 0 where
  // the runtime says that the device cannot hold a single group.
  std::int64_t tasks = 0;
  // P: rows of each of the dW and dB partial buffers; 0 when neither gradient is asked for.
  std::int64_t partial_rows = 0;
  // Elements between two rows of a partial buffer (and of the converted weights): N rounded up to
  // 64, so that every row is 64-byte aligned and a whole vector may be read or written at its end.
  std::int64_t pitch = 0;
  // Workspace, in bytes from its start, each a multiple of 64, in this order:
  // weight, bias: pitch elements of the accumulate type each, where the CPU's kernels read a copy
  //   (repacks_parameters); backward has no bias.
  std::int64_t weight_offset = 0;
  std::int64_t bias_offset = 0;
  // sums: CPU: M × split pairs of doubles; split_row: (mean, Σ(x − mean)²) of a strip; sums_first
  //   with dx: its part of (c1, c2). GPU: sums_first with dx: M pairs (c1, c2) of the accumulate
  //   type; backward_group: M × split pairs of floats.
  std::int64_t sums_offset = 0;
  // dweight, dbias: P × pitch elements of the accumulate type each, where that gradient is asked.
  std::int64_t dweight_offset = 0;
  std::int64_t dbias_offset = 0;
  std::int64_t workspace_bytes = 0;
  // GPU only.
  std::int64_t groups = 0;  // persistent variants: blocks, or clusters of `split` blocks, that
                            // share the rows; group g takes rows g, g + groups, … (wave
                            // variants: blocks of rows_per_block rows)
  int threads = 0;          // of a block, those that serve a ring included
  int vectors = 0;          // packets of a row in each lane: the kernel's instance
  std::int64_t lds_bytes = 0;
};

// Whether the CPU kernels read f32 weights in an order of their own, that of widened bf16 pairs
// (kernels/cpu/packet.h).
inline bool repacks_parameters(const Problem& problem) {
  return problem.x == DType::bf16 && problem.weight == DType::f32;
}

// `config` must have passed validate() for this problem and device.
Plan plan(const Config& config, const Problem& problem, const Device& device);

}  // namespace hipnorm
