#include "csrc/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "csrc/checks.h"

namespace hipnorm::composite {
namespace {

// The dimensions of an [*, normalized_shape] tensor, by what a sum over them means.
class Dims {
 public:
  Dims(const at::Tensor& input, std::size_t normalized_ndim)
      : leading_(input.dim() - static_cast<std::int64_t>(normalized_ndim)), all_(input.dim()) {
    std::iota(all_.begin(), all_.end(), 0);
  }
  // Over a row's columns, the dimensions kept as ones.
  at::Tensor row_mean(const at::Tensor& t) const {
    return at::mean(t, at::IntArrayRef(all_).slice(leading_), /*keepdim=*/true);
  }
  // Over all rows. at::sum takes an empty list for "all dimensions", hence the branch.
  at::Tensor column_sum(const at::Tensor& t) const {
    return leading_ == 0 ? t : at::sum(t, at::IntArrayRef(all_).slice(0, leading_));
  }

 private:
  std::int64_t leading_;
  at::DimVector all_;
};

at::Tensor accumulate(const at::Tensor& tensor) {
  return tensor.to(accumulate_dtype(tensor.scalar_type()));
}

at::Tensor as_rows_statistic(const at::Tensor& statistic, const at::Tensor& input,
                             std::size_t normalized_ndim) {
  c10::SymDimVector shape(input.sym_sizes());
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized_ndim), shape.end(),
            c10::SymInt(1));
  return statistic.to(accumulate_dtype(input.scalar_type())).reshape_symint(shape);
}

bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// g = dy·weight in the accumulate dtype.
at::Tensor weighted(const at::Tensor& grad, const std::optional<at::Tensor>& weight) {
  return present(weight) ? grad * accumulate(*weight) : grad;
}

}  // namespace

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  check_forward(input, normalized_shape, weight, bias);
  const Dims dims(input, normalized_shape.size());
  const at::Tensor x = accumulate(input);
  const at::Tensor mean = dims.row_mean(x);
  const at::Tensor centred = x - mean;
  const at::Tensor rstd = at::rsqrt(dims.row_mean(centred * centred) + eps);
  at::Tensor y = weighted(centred * rstd, weight);
  if (present(bias)) y = y + accumulate(*bias);
  return {y.to(input.scalar_type()), mean, rstd};
}

Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  check_backward(grad_output, input, normalized_shape, mean, rstd, weight, bias);
  const Dims dims(input, normalized_shape.size());
  const at::Tensor x = accumulate(input);
  const at::Tensor dy = accumulate(grad_output);
  at::Tensor mu = as_rows_statistic(mean, input, normalized_shape.size());
  at::Tensor r = as_rows_statistic(rstd, input, normalized_shape.size());
  if (has_tangent(input)) {
    const at::Tensor step = x - x.detach();  // zero; its tangent is input's
    const at::Tensor centred = x.detach() - mu.detach();
    if (!has_tangent(rstd)) r = r - r * r * r * dims.row_mean(centred * step);
    if (!has_tangent(mean)) mu = mu + dims.row_mean(step);
  }
  const at::Tensor x_hat = (x - mu) * r;
  Tensors3 grads;
  if (output_mask[0]) {
    const at::Tensor g = weighted(dy, weight);
    const at::Tensor dx = r * (g - dims.row_mean(g) - x_hat * dims.row_mean(g * x_hat));
    std::get<0>(grads) = dx.to(input.scalar_type());
  }
  if (output_mask[1] && present(weight)) {
    std::get<1>(grads) = dims.column_sum(dy * x_hat).to(weight->scalar_type());
  }
  if (output_mask[2] && present(bias)) {
    // A sum over no dimension is dy itself; multiplied, so that no result aliases an input.
    std::get<2>(grads) = dims.column_sum(dy * 1).to(bias->scalar_type());
  }
  return grads;
}

Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask) {
  check_backward(grad_output, input, normalized_shape, mean, rstd, weight, std::nullopt);
  const Dims dims(input, normalized_shape.size());
  const at::Tensor dy = accumulate(grad_output);
  const at::Tensor r = as_rows_statistic(rstd, input, normalized_shape.size());
  const at::Tensor x_hat =
      (accumulate(input) - as_rows_statistic(mean, input, normalized_shape.size())) * r;
  // Sums of the terms that are there; an empty sum stays undefined until the end.
  at::Tensor d_dy, d_x, d_weight, v;
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    sum = sum.defined() ? sum + term : term;
  };

  if (present(grad_dx)) {
    const at::Tensor a = accumulate(*grad_dx);
    const at::Tensor a_mean = dims.row_mean(a);
    const at::Tensor a_x_hat = dims.row_mean(a * x_hat);
    const at::Tensor p = r * (a - a_mean - x_hat * a_x_hat);
    if (output_mask[0]) add(d_dy, weighted(p, weight));
    if (output_mask[2] && present(weight)) add(d_weight, dims.column_sum(dy * p));
    if (output_mask[1]) {
      const at::Tensor g = weighted(dy, weight);
      const at::Tensor g_x_hat = dims.row_mean(g * x_hat);
      const at::Tensor s = dims.row_mean(a * g) - a_mean * dims.row_mean(g) - a_x_hat * g_x_hat;
      add(v, -r * (a * g_x_hat + g * a_x_hat));
      add(d_x, -r * r * s * x_hat);
    }
  }
  if (present(grad_dweight)) {
    const at::Tensor b = accumulate(*grad_dweight);
    if (output_mask[0]) add(d_dy, b * x_hat);
    if (output_mask[1]) add(v, b * dy);
  }
  if (present(grad_dbias) && output_mask[0]) {
    add(d_dy, accumulate(*grad_dbias) + at::zeros_symint(input.sym_sizes(), dy.options()));
  }
  if (v.defined()) add(d_x, r * (v - dims.row_mean(v) - x_hat * dims.row_mean(v * x_hat)));

  Tensors3 grads;
  if (d_dy.defined()) std::get<0>(grads) = d_dy.to(grad_output.scalar_type());
  if (d_x.defined()) std::get<1>(grads) = d_x.to(input.scalar_type());
  if (d_weight.defined()) std::get<2>(grads) = d_weight.to(weight->scalar_type());
  return grads;
}

}  // namespace hipnorm::composite
