#include "csrc/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "csrc/checks.h"
#include "csrc/operators.h"

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

// A tensor's two halves in forward mode, in the accumulate dtype, so that a result is rounded once.
// The tangent is undefined where it is zero. Level 0: torch.func unwraps its own levels first.
at::Tensor tangent(const at::Tensor& tensor) {
  const at::Tensor& tangent = tensor._fw_grad(/*level=*/0);
  return tangent.defined() ? accumulate(tangent) : at::Tensor();
}
at::Tensor tangent(const std::optional<at::Tensor>& tensor) {
  return present(tensor) ? tangent(*tensor) : at::Tensor();
}
at::Tensor primal(const at::Tensor& tensor) {
  return accumulate(tensor._fw_grad(0).defined() ? tensor._fw_primal(0) : tensor);
}
std::optional<at::Tensor> primal(const std::optional<at::Tensor>& tensor) {
  return present(tensor) ? std::optional(primal(*tensor)) : std::nullopt;
}

// Sums the terms that are there; an empty sum stays undefined.
void add(at::Tensor& sum, const at::Tensor& term) {
  if (term.defined()) sum = sum.defined() ? sum + term : term;
}

at::Tensor rounded(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.defined() ? tensor.to(like.scalar_type()) : at::Tensor();
}

// Rows of one normalisation: rstd is 0 where the kernels count it as 0, and x̂ is 0 there though
// x − mean may overflow.
struct Rows {
  at::Tensor rstd, x_hat;
  Rows(const at::Tensor& input, std::size_t normalized_ndim, const at::Tensor& mean,
       const at::Tensor& saved_rstd) {
    const at::Tensor r = as_rows_statistic(saved_rstd, input, normalized_ndim);
    rstd = at::where(at::isinf(r), 0, r);
    const at::Tensor centred = accumulate(input) - as_rows_statistic(mean, input, normalized_ndim);
    x_hat = at::where(rstd == 0, 0, centred) * rstd;
  }
};

// g = dy·weight in the accumulate dtype.
at::Tensor weighted(const at::Tensor& grad, const std::optional<at::Tensor>& weight) {
  return present(weight) ? grad * accumulate(*weight) : grad;
}

}  // namespace

Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask) {
  check_double_backward(grad_dx, grad_dweight, grad_dbias, grad_output, input, normalized_shape,
                        mean, rstd, weight);
  const Dims dims(input, normalized_shape.size());
  const at::Tensor dy = accumulate(grad_output);
  const auto [r, x_hat] = Rows(input, normalized_shape.size(), mean, rstd);
  at::Tensor d_dy, d_x, d_weight, v;

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
      add(d_x, r * (-r * s * x_hat));
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

  return {rounded(d_dy, grad_output), rounded(d_x, input),
          d_weight.defined() ? rounded(d_weight, *weight) : at::Tensor()};
}

Tensors3 layer_norm_forward_tangents(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                     const std::optional<at::Tensor>& weight,
                                     const std::optional<at::Tensor>& bias, double eps,
                                     const at::Tensor& mean, const at::Tensor& rstd,
                                     bool of_statistics) {
  const Dims dims(input, normalized_shape.size());
  const at::Tensor x = primal(input), x_t = tangent(input);
  const at::Tensor weight_t = tangent(weight), bias_t = tangent(bias);
  of_statistics = of_statistics && x_t.defined();
  at::Tensor x_hat;  // from x, not from the rounded mean: exact as y is
  if (weight_t.defined() || of_statistics) {
    x_hat = hipnorm::layer_norm_symint(x, normalized_shape, std::nullopt, std::nullopt, eps);
  }

  at::Tensor y_t, mean_t, rstd_t;
  if (x_t.defined()) {
    const at::Tensor x_hat_t =
        std::get<0>(layer_norm_backward_symint(Op::backward, x_t, x, normalized_shape, mean, rstd,
                                               std::nullopt, std::nullopt, {true, false, false}));
    add(y_t, weighted(x_hat_t, primal(weight)));
  }
  if (weight_t.defined()) add(y_t, x_hat * weight_t);
  if (bias_t.defined()) add(y_t, bias_t + at::zeros_symint(input.sym_sizes(), bias_t.options()));
  if (of_statistics) {
    mean_t = dims.row_mean(x_t);
    const at::Tensor r = at::where(at::isinf(rstd), 0, rstd);
    rstd_t = -r * (r * dims.row_mean(x_t * x_hat));
  }
  return {rounded(y_t, input), mean_t, rstd_t};
}

Tensors3 layer_norm_backward_tangents(Op op, const at::Tensor& grad_output, const at::Tensor& input,
                                      c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                      const at::Tensor& rstd,
                                      const std::optional<at::Tensor>& weight,
                                      const std::optional<at::Tensor>& bias,
                                      std::array<bool, 3> output_mask) {
  const at::Tensor dy = primal(grad_output), dy_t = tangent(grad_output);
  const at::Tensor x = primal(input), x_t = tangent(input);
  const std::optional<at::Tensor> w = primal(weight), b = primal(bias);
  const at::Tensor w_t = tangent(weight);
  const at::Tensor mu = primal(mean), r = primal(rstd);
  at::Tensor dx_t, dweight_t, dbias_t;
  if (dy_t.defined()) {
    std::tie(dx_t, dweight_t, dbias_t) =
        layer_norm_backward_symint(op, dy_t, x, normalized_shape, mu, r, w, b, output_mask);
  }
  if (w_t.defined() && output_mask[0]) {
    add(dx_t,
        std::get<0>(layer_norm_backward_symint(op, dy * w_t, x, normalized_shape, mu, r,
                                               std::nullopt, std::nullopt, {true, false, false})));
  }
  const bool to_dweight = output_mask[1] && present(weight);
  if (x_t.defined() && (output_mask[0] || to_dweight)) {
    const auto [unused, to_dx, to_dw] = hipnorm::layer_norm_double_backward(
        x_t, std::nullopt, std::nullopt, dy, x, normalized_shape, mu, r, w,
        {false, output_mask[0], to_dweight});
    add(dx_t, to_dx);
    add(dweight_t, to_dw);
  }
  return {rounded(dx_t, input), dweight_t.defined() ? rounded(dweight_t, *weight) : at::Tensor(),
          dbias_t.defined() ? rounded(dbias_t, *bias) : at::Tensor()};
}

}  // namespace hipnorm::composite
