#include "csrc/meta.h"

#include <ATen/ops/empty.h>

#include "csrc/checks.h"

namespace hipnorm::meta {
namespace {

at::Tensor empty(c10::SymIntArrayRef sizes, const at::Tensor& like, at::ScalarType dtype) {
  return at::empty_symint(sizes, at::TensorOptions().dtype(dtype).device(like.device()));
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double /*eps*/) {
  check_forward(input, normalized_shape, weight, bias);
  return empty(input.sym_sizes(), input, input.scalar_type());
}

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  at::Tensor output = layer_norm(input, normalized_shape, weight, bias, eps);
  c10::SymDimVector statistics(input.sym_sizes());
  std::fill(statistics.end() - static_cast<std::ptrdiff_t>(normalized_shape.size()),
            statistics.end(), c10::SymInt(1));
  const at::ScalarType accumulate = accumulate_dtype(input.scalar_type());
  return {std::move(output), empty(statistics, input, accumulate),
          empty(statistics, input, accumulate)};
}

Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  check_backward(grad_output, input, normalized_shape, mean, rstd, weight, bias);
  Tensors3 grads;
  if (output_mask[0]) std::get<0>(grads) = empty(input.sym_sizes(), input, input.scalar_type());
  if (output_mask[1] && present(weight)) {
    std::get<1>(grads) = empty(normalized_shape, input, weight->scalar_type());
  }
  if (output_mask[2] && present(bias)) {
    std::get<2>(grads) = empty(normalized_shape, input, bias->scalar_type());
  }
  return grads;
}

}  // namespace hipnorm::meta
