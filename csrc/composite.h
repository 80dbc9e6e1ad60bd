// LayerNorm and its derivatives as at:: operations: what runs where the kernels cannot, because an
// input carries a forward-mode tangent. Slower, and right in every mode of differentiation.
// Arguments and results as in hipnorm.h, and checked the same way.
#pragma once

#include "csrc/hipnorm.h"

namespace hipnorm::composite {

// The tangents of mean and rstd come with them.
Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps);

// mean and rstd follow input: where input has a tangent and they have none, theirs is derived from
// it, as in double backward.
Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask);

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
// from ∂mean/∂x = 1/N and ∂rstd/∂x = −rstd³(x − mean)/N.
Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask);

}  // namespace hipnorm::composite
