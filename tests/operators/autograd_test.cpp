// Autograd from C++: gradients flow, once and twice, and forced configs reach the backward.
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "csrc/hipnorm.h"
#include "tests/operators/check.h"

namespace hipnorm::testing {
namespace {

using ::testing::HasSubstr;
using torch::autograd::grad;

at::Tensor leaf(const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(); }

struct Leaves {
  at::Tensor x, weight, bias;
  explicit Leaves(const Call& call)
      : x(leaf(call.input)), weight(leaf(*call.weight)), bias(leaf(*call.bias)) {}
  at::Tensor forward(const Call& call) const {
    return call_layer_norm(x, call.normalized_shape(), weight, bias, call.eps);
  }
};

TEST(Autograd, GradientsAreThoseOfTheBackwardOperator) {
  for (const at::ScalarType dtype : kDTypes) {
    const Call call = make_call({3, 5, 70}, 1, dtype, accumulate_dtype(dtype));
    const at::Tensor dy = at::randn(call.input.sizes(), at::kDouble).to(dtype);
    const Leaves leaves(call);
    const at::Tensor y = leaves.forward(call);
    EXPECT_TRUE(y.requires_grad());
    y.backward(dy);
    EXPECT_TRUE(identical({leaves.x.grad(), leaves.weight.grad(), leaves.bias.grad()},
                          run_backward(call, dy)));
  }
}

// Every subset of inputs that require gradients: those get them, the others get none.
TEST(Autograd, OnlyWhatRequiresGradGetsOne) {
  const Call call = make_call({4, 33});
  const at::Tensor dy = at::randn({4, 33});
  const auto [dx, dweight, dbias] = run_backward(call, dy);
  for (int bits = 1; bits < 8; ++bits) {
    Leaves leaves(call);
    leaves.x.requires_grad_((bits & 1) != 0);
    leaves.weight.requires_grad_((bits & 2) != 0);
    leaves.bias.requires_grad_((bits & 4) != 0);
    leaves.forward(call).backward(dy);
    EXPECT_TRUE(identical(leaves.x.grad(), (bits & 1) != 0 ? dx : at::Tensor())) << bits;
    EXPECT_TRUE(identical(leaves.weight.grad(), (bits & 2) != 0 ? dweight : at::Tensor())) << bits;
    EXPECT_TRUE(identical(leaves.bias.grad(), (bits & 4) != 0 ? dbias : at::Tensor())) << bits;
  }
}

TEST(Autograd, NothingIsRecordedWithoutNeed) {
  const Call call = make_call({4, 33});
  EXPECT_FALSE(call_layer_norm(call.input, {33}, call.weight, call.bias).requires_grad());
  const Leaves leaves(call);
  const c10::NoGradGuard no_grad;
  EXPECT_FALSE(leaves.forward(call).requires_grad());
}

TEST(Autograd, LayerNormForwardIsDifferentiableInItsOutputOnly) {
  const Call call = make_call({4, 33});
  const Leaves leaves(call);
  const auto [y, mean, rstd] = call_forward(leaves.x, {33}, leaves.weight, leaves.bias);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(mean.requires_grad());
  EXPECT_FALSE(rstd.requires_grad());
  const at::Tensor dy = at::randn({4, 33});
  y.backward(dy);
  EXPECT_TRUE(identical({leaves.x.grad(), leaves.weight.grad(), leaves.bias.grad()},
                        run_backward(call, dy)));
}

TEST(Autograd, ExpandedGradientOfASum) {
  const Call call = make_call({6, 50});
  const Leaves leaves(call);
  leaves.forward(call).sum().backward();
  EXPECT_TRUE(identical(leaves.bias.grad(), at::full({50}, 6.f)));
  const auto verdict =
      judge(call, at::ones({6, 50}), {leaves.x.grad(), leaves.weight.grad(), leaves.bias.grad()});
  EXPECT_TRUE(verdict.ok()) << verdict.describe();
}

// f(x, w, b) = Σ y·c with its own gradient's scalar product with fixed directions: the derivative
// of that, by autograd, against its difference quotient. f64: the quotient errs by about 1e-8.
TEST(Autograd, SecondDerivativeIsTheDerivativeOfTheFirst) {
  const Call call = make_call({3, 7}, 1, at::kDouble, at::kDouble);
  const at::Tensor c = at::randn({3, 7}, at::kDouble), u = at::randn({3, 7}, at::kDouble),
                   v = at::randn({7}, at::kDouble);
  const auto directional = [&](const Leaves& leaves) {
    const at::Tensor y = leaves.forward(call);
    const auto first = grad({(y * y * c).sum()}, {leaves.x, leaves.weight, leaves.bias}, {},
                            /*retain_graph=*/true, /*create_graph=*/true);
    return (first[0] * u).sum() + (first[1] * v).sum() + (first[2] * v.flip(0)).sum();
  };
  const Leaves leaves(call);
  const auto second = grad({directional(leaves)}, {leaves.x, leaves.weight, leaves.bias});
  constexpr double kStep = 1e-5;
  const auto check = [&](at::Tensor Leaves::* input, const at::Tensor& derivative) {
    for (std::int64_t i = 0; i < derivative.numel(); ++i) {
      const auto moved = [&](double step) {
        Leaves other(call);
        at::Tensor values = (other.*input).detach().clone();
        values.view(-1)[i].add_(step);
        other.*input = values.requires_grad_();
        return directional(other).item<double>();
      };
      const double quotient = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      EXPECT_NEAR(derivative.view(-1)[i].item<double>(), quotient, 1e-6 * (1 + std::abs(quotient)))
          << i;
    }
  };
  check(&Leaves::x, second[0]);
  check(&Leaves::weight, second[1]);
  check(&Leaves::bias, second[2]);
}

TEST(Autograd, ThirdDerivativeRaises) {
  const Call call = make_call({3, 7}, 1, at::kDouble, at::kDouble);
  const Leaves leaves(call);
  const auto first =
      grad({leaves.forward(call).pow(3).sum()}, {leaves.x}, {}, true, /*create_graph=*/true);
  try {
    // Either building the third derivative's graph or walking it may refuse; silence may not be.
    const auto second = grad({first[0].pow(2).sum()}, {leaves.x}, {}, true, /*create_graph=*/true);
    grad({second[0].pow(2).sum()}, {leaves.x});
    FAIL() << "a third derivative was computed";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("third derivative"));
  }
}

// autograd runs backward wherever it likes: the forced config holds there too.
TEST(Autograd, ForcedConfigsReachTheBackward) {
  const Call call = make_call({40, 300});
  const at::Tensor dy = at::randn({40, 300});
  std::vector<Tensors3> results;
  for (const char* config :
       {"cpu_backward_row:rows_per_block=1,vec_bytes=16,parts=5,stream=0",
        "cpu_backward_two_kernel:rows_per_block=1,vec_bytes=16,split=2,parts=3,stream=0",
        "cpu_backward_sums_first:rows_per_block=1,vec_bytes=16,split=3,parts=1,stream=0"}) {
    const ScopedForcedConfig forced(std::string("backward=") + config);
    EXPECT_EQ(call_selected_config("backward", call.input, {300}, call.weight, call.bias),
              std::string(config) + "  source=forced");
    const Leaves leaves(call);
    leaves.forward(call).backward(dy);
    results.push_back({leaves.x.grad(), leaves.weight.grad(), leaves.bias.grad()});
    EXPECT_TRUE(identical(results.back(), run_backward(call, dy)));
  }
  // 5, 3 and 1 partial sums: the last bits of dW tell them apart, so they did run.
  EXPECT_FALSE(identical(std::get<1>(results[0]), std::get<1>(results[1])));
  EXPECT_FALSE(identical(std::get<1>(results[1]), std::get<1>(results[2])));
}

TEST(Autograd, AForcedConfigThatCannotRunThrowsInTheBackwardOnly) {
  const Call call = make_call({4, 33});
  const Leaves leaves(call);
  const ScopedForcedConfig forced("backward=cpu_backward_row:parts=4000");
  const at::Tensor y = leaves.forward(call);
  try {
    y.backward(at::ones_like(y));
    FAIL() << "the forced config was ignored";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("cpu_backward_row"));
    EXPECT_THAT(error.what(), HasSubstr("parts=4000"));
  }
  EXPECT_FALSE(leaves.x.grad().defined());
}

TEST(Autograd, ForcedConfigsNestAndEnd) {
  const at::Tensor x = at::randn({8, 256});
  const std::string before = call_selected_config("forward", x, {256});
  {
    const ScopedForcedConfig outer("forward=cpu_forward_row:vec_bytes=16,parts=1,stream=0");
    EXPECT_THAT(call_selected_config("forward", x, {256}), HasSubstr("source=forced"));
    EXPECT_THAT(call_selected_config("forward", x, {256}), HasSubstr("parts=1"));
    {
      const ScopedForcedConfig inner("forward=cpu_forward_split");
      EXPECT_THAT(call_selected_config("forward", x, {256}), HasSubstr("cpu_forward_split"));
    }
    EXPECT_THAT(call_selected_config("forward", x, {256}), HasSubstr("cpu_forward_row"));
    EXPECT_THAT(call_selected_config("backward", x, {256}), HasSubstr("source=default"));
  }
  EXPECT_EQ(call_selected_config("forward", x, {256}), before);
}

}  // namespace
}  // namespace hipnorm::testing
