// Rules for torch.func.vmap: without them it would call the operators once per example, and warn.
//
// A forward takes the vmapped dimension as one more leading one: a single call. So does a backward
// that asks for dX alone. Per-example dW and dB (or weights) are separate sums over rows for each
// example: one call each. Everything is made of the library's own operators, so that levels of
// differentiation outside the vmap keep their rules.
#pragma once

#include "csrc/dispatch/problem.h"
#include "csrc/hipnorm.h"

namespace hipnorm::batching {

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps);

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps);

// op: one of the three backward ops.
template <Op op>
Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask);

Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask);

}  // namespace hipnorm::batching
