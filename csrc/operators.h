// Operators as the library's own autograd and batching code calls them: through the dispatcher, so
// that tracing, functionalization and fake tensors see an operator.
#pragma once

#include "csrc/dispatch/problem.h"
#include "csrc/hipnorm.h"

namespace hipnorm {

// op: one of the three backward ops.
Tensors3 layer_norm_backward_symint(Op op, const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    const std::optional<at::Tensor>& bias,
                                    std::array<bool, 3> output_mask);

// hipnorm::_layer_norm_double_backward; formulas in composite.h.
Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask);

}  // namespace hipnorm
