// Derivatives that have no kernel of their own: of second order, and in forward mode. Made of this
// library's operators, whose rules for special rows (kernels/launch.h) then hold here too, and of
// at:: operations around them; so every mode of differentiation and vmap may run through them.
// Arguments and results as in hipnorm.h; an undefined result is zero, or was not asked for.
#pragma once

#include "csrc/dispatch/problem.h"
#include "csrc/hipnorm.h"

namespace hipnorm::composite {

// The backward of the three backward operators, for gradients A, B, C of their results dX, dW, dB
// (each optional): the gradients of grad_output, input and weight, where output_mask asks for them
// and something contributes; the others are undefined. With x̂ = (x − mean)·rstd, g = dy·weight,
// and mean(…) taken over a row:
//   p      = rstd·(A − mean(A) − x̂·mean(A·x̂))
//   d(dy)  = weight·p + B·x̂ + C
//   d(weight) = Σ_rows dy·p
//   v      = B·dy − rstd·(A·mean(g·x̂) + g·mean(A·x̂))          (what arrives at x̂)
//   s      = mean(A·g) − mean(A)·mean(g) − mean(A·x̂)·mean(g·x̂)  (÷N: what arrives at rstd)
//   d(x)   = rstd·(v − mean(v) − x̂·mean(v·x̂)) − rstd²·s·x̂
// from ∂mean/∂x = 1/N and ∂rstd/∂x = −rstd³(x − mean)/N. Where rstd is 0 or Inf, x̂ = 0 and rstd
// counts as 0.
Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask);

// Tangents of (y, mean, rstd), given mean and rstd as layer_norm_forward returned them. With ẋ, ẇ,
// ḃ for the tangents:
//   ẏ = weight·(∂x̂/∂x)ẋ + x̂·ẇ + ḃ
// ∂x̂/∂x is symmetric, so that (∂x̂/∂x)ẋ is the backward's dX for dy = ẋ without a weight.
Tensors3 layer_norm_forward_tangents(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                     const std::optional<at::Tensor>& weight,
                                     const std::optional<at::Tensor>& bias, double eps,
                                     const at::Tensor& mean, const at::Tensor& rstd,
                                     bool of_statistics);

// Tangents of (dX, dW, dB) for those of grad_output, input and weight; mean and rstd are functions
// of input, and tangents of their own are ignored. The results are linear in dy; d(dX)/dx, a matrix
// of second derivatives, is symmetric, and d(dW)/dx the transpose of d(dX)/dweight: ẋ's share is
// what layer_norm_double_backward gives for A = ẋ.
Tensors3 layer_norm_backward_tangents(Op op, const at::Tensor& grad_output, const at::Tensor& input,
                                      c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                      const at::Tensor& rstd,
                                      const std::optional<at::Tensor>& weight,
                                      const std::optional<at::Tensor>& bias,
                                      std::array<bool, 3> output_mask);

}  // namespace hipnorm::composite
