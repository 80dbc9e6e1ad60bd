// The backend entry points: what the CPU and CUDA keys run. Schemas are in library.cpp; shapes,
// dtypes and results as documented in hipnorm.h.
#pragma once

#include "csrc/hipnorm.h"

namespace hipnorm::backend {

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps);

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps);

Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask);
Tensors3 layer_norm_backward_fused(const at::Tensor& grad_output, const at::Tensor& input,
                                   c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::array<bool, 3> output_mask);
Tensors3 layer_norm_backward_two_kernel(const at::Tensor& grad_output, const at::Tensor& input,
                                        c10::SymIntArrayRef normalized_shape,
                                        const at::Tensor& mean, const at::Tensor& rstd,
                                        const std::optional<at::Tensor>& weight,
                                        const std::optional<at::Tensor>& bias,
                                        std::array<bool, 3> output_mask);

std::string selected_config(std::string_view op, const at::Tensor& input,
                            c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask);

}  // namespace hipnorm::backend
