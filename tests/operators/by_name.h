// The operators as a program sees them that knows only their names: through the dispatcher, boxed.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace hipnorm::testing {

using MaybeTensor = std::optional<at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Mask = std::array<bool, 3>;
using Shape = std::vector<std::int64_t>;
inline constexpr Mask kAllGrads = {true, true, true};

at::Tensor call_layer_norm(const at::Tensor& input, const Shape& normalized_shape,
                           const MaybeTensor& weight = {}, const MaybeTensor& bias = {},
                           double eps = 1e-5);
Tensors3 call_forward(const at::Tensor& input, const Shape& normalized_shape,
                      const MaybeTensor& weight = {}, const MaybeTensor& bias = {},
                      double eps = 1e-5);
// `op`: layer_norm_backward, layer_norm_backward_fused or layer_norm_backward_two_kernel.
Tensors3 call_backward(const std::string& op, const at::Tensor& grad_output,
                       const at::Tensor& input, const Shape& normalized_shape,
                       const at::Tensor& mean, const at::Tensor& rstd,
                       const MaybeTensor& weight = {}, const MaybeTensor& bias = {},
                       Mask output_mask = kAllGrads);
inline const std::array<std::string, 3> kBackwardOps = {
    "layer_norm_backward", "layer_norm_backward_fused", "layer_norm_backward_two_kernel"};

std::string call_selected_config(const std::string& op, const at::Tensor& input,
                                 const Shape& normalized_shape, const MaybeTensor& weight = {},
                                 const MaybeTensor& bias = {}, Mask output_mask = kAllGrads);

}  // namespace hipnorm::testing
