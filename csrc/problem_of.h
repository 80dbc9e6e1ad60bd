// From tensors to the Problem that dispatch sees: dtypes, row layouts, alignment.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>

#include "csrc/dispatch/problem.h"

namespace hipnorm {

// How a tensor [*, normalized_shape] can be read as M rows of N contiguous elements.
struct RowLayout {
  std::int64_t stride = 0;  // elements between two rows; 0 where one row is expanded to all
  bool copy = false;        // no such reading: .contiguous() first (stride is N then)
};
RowLayout row_layout(const at::Tensor& tensor, std::int64_t normalized_ndim, std::int64_t cols);

// The Problem of a forward, and the layout in which x will be read. All tensors have passed
// check_forward.
struct ForwardProblem {
  Problem problem;
  RowLayout x;
};
ForwardProblem forward_problem(const at::Tensor& input, std::int64_t normalized_ndim,
                               std::int64_t rows, const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias);

// The same for a backward; a gradient is asked for where output_mask does and its tensor exists.
// Without grad_output (nullptr) a new contiguous one is assumed.
struct BackwardProblem {
  Problem problem;
  RowLayout x;
  RowLayout dy;
};
BackwardProblem backward_problem(Op op, const at::Tensor* grad_output, const at::Tensor& input,
                                 std::int64_t normalized_ndim, std::int64_t rows,
                                 const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias,
                                 std::array<bool, 3> output_mask);

}  // namespace hipnorm
