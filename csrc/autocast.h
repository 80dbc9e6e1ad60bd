// Autocast, as ATen treats layer_norm and native_layer_norm: on CUDA (and ROCm) inputs are cast to
// float32, float64 excepted, and the results are float32; on the CPU nothing is cast. Backward
// operators are not cast: they get what the forward saved.
#pragma once

#include "csrc/hipnorm.h"

namespace hipnorm::autocast {

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps);

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps);

}  // namespace hipnorm::autocast
