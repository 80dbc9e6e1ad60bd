#include "csrc/autocast.h"

#include <ATen/autocast_mode.h>

namespace hipnorm::autocast {
namespace {

template <class T>
T to_float(const T& tensor) {
  return at::autocast::cached_cast(at::kFloat, tensor, c10::DeviceType::CUDA);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::Autocast);
  return hipnorm::layer_norm_symint(to_float(input), normalized_shape, to_float(weight),
                                    to_float(bias), eps);
}

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::Autocast);
  return layer_norm_forward_symint(to_float(input), normalized_shape, to_float(weight),
                                   to_float(bias), eps);
}

}  // namespace hipnorm::autocast
