// The workspace of one call, section by section: the one formula behind plan() and validate().
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// Columns are dealt out in groups of 64 elements: 64 × 2 bytes are two cache lines, so no two
// strips ever write to the same line, and 64 elements are whole vectors of every dtype and width.
inline constexpr std::int64_t kColumnGroup = 64;
constexpr std::int64_t column_groups(std::int64_t cols) {
  return cols / kColumnGroup + (cols % kColumnGroup != 0);
}

// Sizes in bytes, each a multiple of 64; 0: not needed. T = std::int64_t for the plan; T = double
// to judge a size that may overflow 64 bits.
template <typename T>
struct Workspace {
  T pitch = 0;  // elements
  T weight = 0;
  T bias = 0;
  T sums = 0;
  T dweight = 0;
  T dbias = 0;
  T total() const { return weight + bias + sums + dweight + dbias; }
};

// Rows of each partial buffer, when `parts` sums of rows are formed: config.parts, or the groups of
// a persistent GPU variant.
inline std::int64_t partial_rows(std::int64_t parts, const Problem& problem) {
  return problem.is_backward() && problem.grads.columns() ? parts : 0;
}

// Nothing is needed where there is nothing to run (rows or cols 0).
template <typename T>
Workspace<T> workspace(const Config& config, const Problem& problem, std::int64_t parts) {
  Workspace<T> sizes;
  if (problem.rows == 0 || problem.cols == 0) return sizes;
  sizes.pitch = static_cast<T>(column_groups(problem.cols)) * static_cast<T>(kColumnGroup);

  const DType accumulate = accumulate_type(problem.x);
  const T row_bytes = sizes.pitch * static_cast<T>(size_of(accumulate));
  const VariantInfo& variant = info(config.variant);
  const bool gpu = variant.kind == DeviceKind::gpu;
  if (!gpu && repacks_parameters(problem)) {
    if (problem.has_weight) sizes.weight = row_bytes;
    if (problem.has_bias && !problem.is_backward()) sizes.bias = row_bytes;
  }

  const bool sums_first = variant.form == Form::sums_first && problem.grads.dx;
  if (gpu && sums_first) {  // (c1, c2) of each row; 8 pairs of float make 64 bytes
    const std::int64_t pairs = 64 / (2 * size_of(accumulate));
    const std::int64_t pad = (pairs - problem.rows % pairs) % pairs;
    sizes.sums = (static_cast<T>(problem.rows) + static_cast<T>(pad)) *
                 static_cast<T>(2 * size_of(accumulate));
  } else if (config.variant == Variant::gpu_backward_group) {  // (Σg, Σg·x̂) of a row's strip
    const std::int64_t pad = (8 - (problem.rows % 8) * (config.split % 8) % 8) % 8;
    sizes.sums =
        (static_cast<T>(problem.rows) * static_cast<T>(config.split) + static_cast<T>(pad)) * 8;
  } else if (!gpu && (variant.form == Form::split_row || sums_first)) {
    // 2 doubles a row and strip: (mean, M2) or (c1, c2); 4 pairs make 64 bytes
    const std::int64_t pad = (4 - (problem.rows % 4) * (config.split % 4) % 4) % 4;
    sizes.sums =
        (static_cast<T>(problem.rows) * static_cast<T>(config.split) + static_cast<T>(pad)) *
        static_cast<T>(2 * sizeof(double));
  }
  const T partial = static_cast<T>(partial_rows(parts, problem)) * row_bytes;
  if (problem.grads.dweight) sizes.dweight = partial;
  if (problem.grads.dbias) sizes.dbias = partial;
  return sizes;
}

// Sets plan's pitch, partial_rows, offsets and workspace_bytes.
void lay_out_workspace(Plan& plan, const Config& config, const Problem& problem,
                       std::int64_t parts);

}  // namespace hipnorm
