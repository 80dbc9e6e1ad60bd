// The judge on right and on damaged tensors, and the inputs it works on.
#include "bench/check.h"

#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <gtest/gtest.h>

#include <limits>

#include "bench/inputs.h"

namespace hipnorm::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Right outputs for the dtypes below f64: computed by aten in f64, then rounded once.
Outputs right_forward(const Inputs& in) {
  auto [y, mean, rstd] =
      at::native_layer_norm(in.x.to(at::kDouble), {in.shape.cols}, in.weight.to(at::kDouble),
                            in.bias.to(at::kDouble), kEps);
  return {y.to(in.x.scalar_type()), mean.to(at::kFloat), rstd.to(at::kFloat)};
}

Outputs right_backward(const Inputs& in) {
  const at::Tensor x = in.x.to(at::kDouble);
  const at::Tensor weight = in.weight.to(at::kDouble);
  const at::Tensor bias = in.bias.to(at::kDouble);
  auto [y, mean, rstd] = at::native_layer_norm(x, {in.shape.cols}, weight, bias, kEps);
  auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      in.dy.to(at::kDouble), x, {in.shape.cols}, mean, rstd, weight, bias, {true, true, true});
  const at::ScalarType dtype = in.x.scalar_type();
  return {dx.to(dtype), dweight.to(dtype), dbias.to(dtype)};
}

Outputs cloned(const Outputs& outputs) {
  return {outputs[0].clone(), outputs[1].clone(), outputs[2].clone()};
}

class CheckTest : public testing::TestWithParam<DType> {
 protected:
  Inputs inputs_ = make_inputs({7, 129}, GetParam(), at::kCPU, true);
};
INSTANTIATE_TEST_SUITE_P(DTypes, CheckTest, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(CheckTest, PassesCorrectlyRoundedResults) {
  const Outputs forward = right_forward(inputs_);
  const Checks checks = check_forward(inputs_, forward, forward, 2);
  EXPECT_TRUE(checks.hipnorm.ok) << checks.hipnorm.message;
  EXPECT_LE(checks.hipnorm.worst, 1);
  const Outputs backward = right_backward(inputs_);
  const Check back = check_backward(inputs_, backward, backward, 2).hipnorm;
  EXPECT_TRUE(back.ok) << back.message;
}

TEST_P(CheckTest, FindsOneWrongElementOfEveryOutput) {
  struct Case {
    int output;
    bool row_output;  // [M, N] or [M]: the element lies in row 5
    const char* forward_name;
    const char* backward_name;
  };
  for (const Case& c :
       {Case{0, true, "y", "dX"}, Case{1, true, "mean", "dW"}, Case{2, true, "rstd", "dB"}}) {
    const Outputs forward = right_forward(inputs_);
    Outputs wrong = cloned(forward);
    wrong[static_cast<std::size_t>(c.output)][5] *= 1.1;
    Checks checks = check_forward(inputs_, wrong, forward, 2);
    EXPECT_FALSE(checks.hipnorm.ok);
    EXPECT_TRUE(checks.aten.ok) << checks.aten.message;
    EXPECT_NE(checks.hipnorm.message.find(std::string(c.forward_name) + ":"), std::string::npos)
        << checks.hipnorm.message;
    EXPECT_NE(checks.hipnorm.message.find("(5, "), std::string::npos) << checks.hipnorm.message;

    const Outputs backward = right_backward(inputs_);
    wrong = cloned(backward);
    wrong[static_cast<std::size_t>(c.output)][5] *= 1.1;
    checks = check_backward(inputs_, backward, wrong, 2);
    EXPECT_TRUE(checks.hipnorm.ok) << checks.hipnorm.message;
    EXPECT_FALSE(checks.aten.ok);
    EXPECT_NE(checks.aten.message.find(std::string(c.backward_name) + ":"), std::string::npos)
        << checks.aten.message;
  }
}

TEST_P(CheckTest, NaNIsInfinitelyWrong) {
  const Outputs right = right_forward(inputs_);
  Outputs wrong = cloned(right);
  wrong[0][6][128] = kNaN;
  const Check check = check_forward(inputs_, wrong, right, 1).hipnorm;
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.worst, kInfinity);
  EXPECT_NE(check.message.find("(6, 128)"), std::string::npos) << check.message;
}

TEST(Check, RefusesOutputsOfAnotherSize) {
  const Inputs inputs = make_inputs({3, 5}, DType::f32, at::kCPU, true);
  const Outputs right = right_forward(inputs);
  Outputs wrong = right;
  wrong[0] = right[0].narrow(1, 0, 4);
  EXPECT_THROW(check_forward(inputs, wrong, right, 1), c10::Error);
  wrong = right_backward(inputs);
  wrong[1] = at::Tensor();
  EXPECT_THROW(check_backward(inputs, wrong, right_backward(inputs), 1), c10::Error);
}

TEST(Inputs, AreTheSameEveryTimeAndAcrossDtypes) {
  const Inputs f32 = make_inputs({3, 1000}, DType::f32, at::kCPU, true);
  const Inputs again = make_inputs({3, 1000}, DType::f32, at::kCPU, true);
  const Inputs bf16 = make_inputs({3, 1000}, DType::bf16, at::kCPU, true);
  EXPECT_TRUE(f32.x.equal(again.x));
  EXPECT_TRUE(f32.dy.equal(again.dy));
  EXPECT_TRUE(f32.x.to(at::kBFloat16).equal(bf16.x));
  EXPECT_FALSE(f32.x.equal(f32.dy));
  // 3000 values: the mean's standard deviation is 0.5/√3000 = 0.009.
  EXPECT_NEAR(f32.x.mean().item<double>(), -2.3, 0.05);
  EXPECT_NEAR(f32.x.std().item<double>(), 0.5, 0.05);
  EXPECT_NEAR(f32.dy.std().item<double>(), 1, 0.1);
}

}  // namespace
}  // namespace hipnorm::bench
