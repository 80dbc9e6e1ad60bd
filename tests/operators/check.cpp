#include "tests/operators/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace hipnorm::testing {
namespace {

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kDouble: return DType::f64;
    default: TORCH_CHECK(false, "no reference for dtype ", tensor.scalar_type());
  }
}

// Contiguous copies, alive as long as the judging.
class Views {
 public:
  reference::Vector vector(const MaybeTensor& tensor) {
    if (!tensor || !tensor->defined()) return {};
    kept_.push_back(tensor->detach().contiguous());
    return {dtype_of(kept_.back()), kept_.back().const_data_ptr()};
  }
  reference::Matrix matrix(const MaybeTensor& tensor, std::int64_t cols) {
    const reference::Vector all = vector(tensor);
    return {all.dtype, all.data, cols};
  }

 private:
  std::vector<at::Tensor> kept_;
};

void expect_like(const at::Tensor& got, const at::Tensor& like, const char* name) {
  ASSERT_TRUE(got.defined()) << name;
  EXPECT_EQ(got.sizes(), like.sizes()) << name;
  EXPECT_EQ(got.scalar_type(), like.scalar_type()) << name;
  EXPECT_TRUE(got.is_contiguous()) << name;
}

}  // namespace

Shape Call::normalized_shape() const {
  return input.sizes().slice(static_cast<std::size_t>(input.dim() - normalized_dims)).vec();
}
std::int64_t Call::cols() const { return c10::multiply_integers(normalized_shape()); }
std::int64_t Call::rows() const {
  return c10::multiply_integers(
      input.sizes().slice(0, static_cast<std::size_t>(input.dim() - normalized_dims)));
}

Call make_call(const Shape& sizes, std::int64_t normalized_dims, at::ScalarType input,
               at::ScalarType parameters) {
  Call call;
  call.input = at::randn(sizes, at::kDouble).mul_(0.5).sub_(2.3).to(input);
  call.normalized_dims = normalized_dims;
  call.weight = at::randn(call.normalized_shape(), at::kDouble).to(parameters);
  call.bias = at::randn(call.normalized_shape(), at::kDouble).to(parameters);
  return call;
}

Tensors3 run_forward(const Call& call) {
  return call_forward(call.input, call.normalized_shape(), call.weight, call.bias, call.eps);
}

Tensors3 run_backward(const Call& call, const at::Tensor& grad_output, const std::string& op,
                      Mask mask) {
  const auto [y, mean, rstd] = run_forward(call);
  return call_backward(op, grad_output, call.input, call.normalized_shape(), mean, rstd,
                       call.weight, call.bias, mask);
}

reference::ForwardVerdict judge(const Call& call, const Tensors3& results) {
  Views views;
  const auto& [y, mean, rstd] = results;
  return reference::judge_forward(
      {.rows = call.rows(),
       .cols = call.cols(),
       .x = views.matrix(call.input, call.cols()),
       .weight = views.vector(call.weight),
       .bias = views.vector(call.bias),
       .eps = call.eps},
      {.y = views.matrix(y, call.cols()), .mean = views.vector(mean), .rstd = views.vector(rstd)});
}

reference::BackwardVerdict judge(const Call& call, const at::Tensor& grad_output,
                                 const Tensors3& results) {
  Views views;
  const auto& [dx, dweight, dbias] = results;
  return reference::judge_backward({.rows = call.rows(),
                                    .cols = call.cols(),
                                    .dy = views.matrix(grad_output, call.cols()),
                                    .x = views.matrix(call.input, call.cols()),
                                    .weight = views.vector(call.weight),
                                    .mean = {},
                                    .rstd = {},
                                    .eps = call.eps},
                                   {.dx = views.matrix(dx, call.cols()),
                                    .dweight = views.vector(dweight),
                                    .dbias = views.vector(dbias)});
}

void expect_right(const Call& call, const at::Tensor& grad_output) {
  const Tensors3 forward = run_forward(call);
  expect_like(std::get<0>(forward), call.input, "y");
  const reference::ForwardVerdict verdict = judge(call, forward);
  EXPECT_TRUE(verdict.ok()) << verdict.describe();
  EXPECT_TRUE(identical(
      call_layer_norm(call.input, call.normalized_shape(), call.weight, call.bias, call.eps),
      std::get<0>(forward)))
      << "layer_norm differs from layer_norm_forward";
  for (const std::string& op : kBackwardOps) {
    SCOPED_TRACE(op);
    const auto grads =
        call_backward(op, grad_output, call.input, call.normalized_shape(), std::get<1>(forward),
                      std::get<2>(forward), call.weight, call.bias);
    const auto& [dx, dweight, dbias] = grads;
    expect_like(dx, call.input, "dX");
    if (call.weight) {
      expect_like(dweight, *call.weight, "dW");
    } else {
      EXPECT_FALSE(dweight.defined());
    }
    if (call.bias) {
      expect_like(dbias, *call.bias, "dB");
    } else {
      EXPECT_FALSE(dbias.defined());
    }
    const reference::BackwardVerdict backward_verdict = judge(call, grad_output, grads);
    EXPECT_TRUE(backward_verdict.ok()) << backward_verdict.describe();
  }
}

void expect_right(const Call& call) {
  expect_right(call, at::randn(call.input.sizes(), at::kDouble).to(call.input.scalar_type()));
}

bool identical(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto one_nan = [](const at::Tensor& tensor) {  // NaN has many bit patterns
    const at::Tensor values = tensor.detach();
    return values.masked_fill(at::isnan(values), NAN).contiguous();
  };
  const at::Tensor left = one_nan(a), right = one_nan(b);
  return left.nbytes() == 0 ||
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}
bool identical(const Tensors3& a, const Tensors3& b) {
  return identical(std::get<0>(a), std::get<0>(b)) && identical(std::get<1>(a), std::get<1>(b)) &&
         identical(std::get<2>(a), std::get<2>(b));
}

}  // namespace hipnorm::testing
