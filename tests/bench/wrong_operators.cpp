// Stands in for hipnorm's CPU kernels and is right, except for
//   5 rows: forward's y[3][2] is 0.01 too large, backward's dW[1] too;
//   6 rows: the call fails.
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

std::optional<Tensor> to_double(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional(tensor->to(at::kDouble)) : std::nullopt;
}

void refuse_six(const Tensor& input) {
  TORCH_CHECK(input.size(0) != 6, "six rows are refused by this test");
}

Three forward(const Tensor& input, c10::SymIntArrayRef shape, const std::optional<Tensor>& weight,
              const std::optional<Tensor>& bias, double eps) {
  refuse_six(input);
  auto [y, mean, rstd] = at::native_layer_norm_symint(input.to(at::kDouble), shape,
                                                      to_double(weight), to_double(bias), eps);
  if (input.size(0) == 5) y[3][2] += 0.01;
  return {y.to(input.scalar_type()), mean.to(at::kFloat), rstd.to(at::kFloat)};
}

Three backward(const Tensor& grad, const Tensor& input, c10::SymIntArrayRef shape,
               const Tensor& mean, const Tensor& rstd, const std::optional<Tensor>& weight,
               const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  auto [dx, dweight, dbias] = at::native_layer_norm_backward_symint(
      grad.to(at::kDouble), input.to(at::kDouble), shape, mean.to(at::kDouble),
      rstd.to(at::kDouble), to_double(weight), to_double(bias), mask);
  if (input.size(0) == 5) dweight[1] += 0.01;
  const at::ScalarType dtype = input.scalar_type();
  return {dx.to(dtype), dweight.to(dtype), dbias.to(dtype)};
}

}  // namespace

TORCH_LIBRARY_IMPL(hipnorm, CPU, library) {
  library.impl("layer_norm_forward", &forward);
  library.impl("layer_norm_backward", &backward);
}
