// More exact than ATen on the CPU, not merely as exact: judged by the same bounds, hipnorm keeps
// them where ATen does not.
#include <gtest/gtest.h>

#include "tests/operators/check.h"

namespace hipnorm::testing {
namespace {

Tensors3 aten_forward(const Call& call) {
  return at::native_layer_norm(call.input, call.normalized_shape(), call.weight, call.bias,
                               call.eps);
}
Tensors3 aten_backward(const Call& call, const at::Tensor& grad) {
  const auto [y, mean, rstd] = aten_forward(call);
  return at::native_layer_norm_backward(grad, call.input, call.normalized_shape(), mean, rstd,
                                        call.weight, call.bias, kAllGrads);
}

// ATen saves mean and rstd of 16-bit inputs in 16 bits: 3 or 2 digits.
TEST(Accuracy, StatisticsOf16BitInputs) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Call call = make_call({64, 4096}, 1, dtype, dtype);
    const auto ours = judge(call, run_forward(call));
    const auto [y, mean, rstd] = aten_forward(call);
    const auto aten = judge(call, {y, mean.to(at::kFloat), rstd.to(at::kFloat)});
    EXPECT_TRUE(ours.ok()) << ours.describe();
    EXPECT_FALSE(aten.mean.ok());
    EXPECT_FALSE(aten.rstd.ok());
    EXPECT_LT(100 * ours.mean.worst, aten.mean.worst);
    EXPECT_LT(100 * ours.rstd.worst, aten.rstd.worst);
  }
}

// … and sums dW and dB of many rows in 16 bits.
TEST(Accuracy, ColumnSumsOf16BitInputs) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Call call = make_call({4096, 64}, 1, dtype, dtype);
    const at::Tensor grad = at::randn({4096, 64}, at::kDouble).to(dtype);
    for (const std::string& op : kBackwardOps) {
      const auto ours = judge(call, grad, run_backward(call, grad, op));
      EXPECT_TRUE(ours.ok()) << op << ": " << ours.describe();
      const auto aten = judge(call, grad, aten_backward(call, grad));
      EXPECT_LT(2 * ours.dweight.worst, aten.dweight.worst);
      EXPECT_LT(2 * ours.dbias.worst, aten.dbias.worst);
    }
  }
}

// dX as a·dy + b·x + c loses the digits of a large mean twice; rstd·(g − c1 − x̂·c2) does not.
TEST(Accuracy, InputGradientAtALargeMean) {
  Call call = make_call({64, 1024});
  call.input = at::randn({64, 1024}).mul_(0.01).add_(100);
  const at::Tensor grad = at::randn({64, 1024});
  for (const std::string& op : kBackwardOps) {
    const auto ours = judge(call, grad, run_backward(call, grad, op));
    EXPECT_TRUE(ours.ok()) << op << ": " << ours.describe();
    EXPECT_LT(ours.dx.worst, judge(call, grad, aten_backward(call, grad)).dx.worst);
  }
}

}  // namespace
}  // namespace hipnorm::testing
