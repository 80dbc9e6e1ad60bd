// The typed functions of hipnorm.h: each finds its operator once and calls it through the
// dispatcher. The library's own autograd and batching code calls the same functions.
#include <ATen/core/dispatch/Dispatcher.h>

#include "csrc/dispatch/forced.h"
#include "csrc/operators.h"

namespace hipnorm {
namespace {

using Forward = at::Tensor(const at::Tensor&, c10::SymIntArrayRef, const std::optional<at::Tensor>&,
                           const std::optional<at::Tensor>&, double);
using Forward3 = Tensors3(const at::Tensor&, c10::SymIntArrayRef, const std::optional<at::Tensor>&,
                          const std::optional<at::Tensor>&, double);
using Backward = Tensors3(const at::Tensor&, const at::Tensor&, c10::SymIntArrayRef,
                          const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                          const std::optional<at::Tensor>&, std::array<bool, 3>);
using DoubleBackward = Tensors3(const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
                                const std::optional<at::Tensor>&, const at::Tensor&,
                                const at::Tensor&, c10::SymIntArrayRef, const at::Tensor&,
                                const at::Tensor&, const std::optional<at::Tensor>&,
                                std::array<bool, 3>);
using SelectedConfig = std::string(std::string_view, const at::Tensor&, c10::SymIntArrayRef,
                                   const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&, std::array<bool, 3>);

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

}  // namespace

at::Tensor layer_norm_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                             const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias, double eps) {
  static const auto op = find<Forward>("hipnorm::layer_norm");
  return op.call(input, normalized_shape, weight, bias, eps);
}

at::Tensor layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  return layer_norm_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps);
}

Tensors3 layer_norm_forward_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                   const std::optional<at::Tensor>& weight,
                                   const std::optional<at::Tensor>& bias, double eps) {
  static const auto op = find<Forward3>("hipnorm::layer_norm_forward");
  return op.call(input, normalized_shape, weight, bias, eps);
}

Tensors3 layer_norm_forward(const at::Tensor& input, at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  return layer_norm_forward_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias,
                                   eps);
}

Tensors3 layer_norm_backward_symint(Op op, const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    const std::optional<at::Tensor>& bias,
                                    std::array<bool, 3> output_mask) {
  static const auto any = find<Backward>("hipnorm::layer_norm_backward");
  static const auto fused = find<Backward>("hipnorm::layer_norm_backward_fused");
  static const auto two_kernel = find<Backward>("hipnorm::layer_norm_backward_two_kernel");
  const auto& chosen = op == Op::backward_fused        ? fused
                       : op == Op::backward_two_kernel ? two_kernel
                                                       : any;
  return chosen.call(grad_output, input, normalized_shape, mean, rstd, weight, bias, output_mask);
}

Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             at::IntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  return layer_norm_backward_symint(Op::backward, grad_output, input,
                                    c10::fromIntArrayRefSlow(normalized_shape), mean, rstd, weight,
                                    bias, output_mask);
}

Tensors3 layer_norm_backward_fused(const at::Tensor& grad_output, const at::Tensor& input,
                                   at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::array<bool, 3> output_mask) {
  return layer_norm_backward_symint(Op::backward_fused, grad_output, input,
                                    c10::fromIntArrayRefSlow(normalized_shape), mean, rstd, weight,
                                    bias, output_mask);
}

Tensors3 layer_norm_backward_two_kernel(const at::Tensor& grad_output, const at::Tensor& input,
                                        at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                        const at::Tensor& rstd,
                                        const std::optional<at::Tensor>& weight,
                                        const std::optional<at::Tensor>& bias,
                                        std::array<bool, 3> output_mask) {
  return layer_norm_backward_symint(Op::backward_two_kernel, grad_output, input,
                                    c10::fromIntArrayRefSlow(normalized_shape), mean, rstd, weight,
                                    bias, output_mask);
}

Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask) {
  static const auto op = find<DoubleBackward>("hipnorm::_layer_norm_double_backward");
  return op.call(grad_dx, grad_dweight, grad_dbias, grad_output, input, normalized_shape, mean,
                 rstd, weight, output_mask);
}

std::string selected_config(std::string_view op, const at::Tensor& input,
                            at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias,
                            std::array<bool, 3> output_mask) {
  static const auto handle = find<SelectedConfig>("hipnorm::selected_config");
  return handle.call(op, input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias,
                     output_mask);
}

struct ScopedForcedConfig::Impl {
  ForcedConfigGuard guard;
};

ScopedForcedConfig::ScopedForcedConfig(std::string_view text)
    : impl_(new Impl{ForcedConfigGuard(text)}) {}
ScopedForcedConfig::~ScopedForcedConfig() = default;

}  // namespace hipnorm
