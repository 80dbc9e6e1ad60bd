// Failures that users of other LayerNorm implementations reported in public. Each entry says what
// went wrong there, and checks that it does not here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "csrc/hipnorm.h"
#include "tests/operators/check.h"
#include "tests/operators/device.h"

namespace hipnorm::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Report {
  const char* name;
  void (*check)();
};

Call with_input(const at::Tensor& input) {
  Call call = make_call(input.sizes().vec(), 1, input.scalar_type(), input.scalar_type());
  call.input = input;
  return call;
}

const std::vector<Report> kReports = {
    // The variance as E[x²] − E[x]² was lost entirely: rstd became 1/√eps, 300 times too large.
    {"SmallSpreadAroundALargeMean",
     [] {
       const Call call = with_input(at::randn({64, 32768}).mul_(0.01).add_(100));
       expect_right(call);
       const at::Tensor rstd = std::get<2>(run_forward(call));
       EXPECT_LT(rstd.sub(95.3).abs().max().item<float>(), 2);  // 1/√(1e-4 + 1e-5)
     }},
    // CPU and GPU differed in the first digit.
    {"FewElementsAroundALargeMean", [] { expect_right(with_input(at::randn({5, 4}).add_(2000))); }},
    // A variance that came out negative made the row NaN.
    {"ConsecutiveNumbersFarFromZero",
     [] {
       const Call call = with_input(at::arange(40000, 40004, at::kFloat).view({1, 4}));
       expect_right(call);
       EXPECT_TRUE(at::isfinite(std::get<0>(run_forward(call))).all().item<bool>());
     }},
    // Squares overflowed: Inf or NaN. Here a variance that f32 cannot hold gives rstd = 0, y =
    // bias.
    {"VarianceOverflowsFloat",
     [] {
       const at::Tensor signs = at::randint(0, 2, {1, 500}, at::kFloat).mul_(2).sub_(1);
       const at::Tensor scales = at::tensor({1e30, 1e35, 3e38}, at::kDouble).to(at::kFloat);
       const Call call =
           with_input(scales.view({3, 1}) * signs * at::rand({3, 500}).add_(0.1).clamp_max_(1));
       expect_right(call);
       const auto [y, mean, rstd] = run_forward(call);
       EXPECT_TRUE(at::equal(y, call.bias->expand({3, 500})));
       EXPECT_TRUE(at::equal(rstd, at::zeros({3, 1})));
     }},
    // A view of columns, or a transpose, was read as if it was contiguous.
    {"StridedInputIsNotContiguousInput",
     [] {
       expect_right(with_input(at::randn({8, 100}).slice(1, 0, 64)));
       expect_right(with_input(at::randn({3, 40, 5}).transpose(1, 2)));
       expect_right(with_input(at::randn({6, 3, 40}).transpose(0, 1)));
     }},
    // With weight but no bias a kernel read the bias through a null pointer, or took garbage.
    {"WeightWithoutBias",
     [] {
       Call call = make_call({9, 130});
       call.bias.reset();
       expect_right(call);
     }},
    // … and the other way about.
    {"BiasWithoutWeight",
     [] {
       Call call = make_call({9, 130});
       call.weight.reset();
       expect_right(call);
     }},
    // elementwise_affine=False was an error, in backward if not in forward.
    {"NeitherWeightNorBias",
     [] {
       Call call = make_call({9, 130});
       call.weight.reset();
       call.bias.reset();
       expect_right(call);
       const at::Tensor x = call.input.clone().requires_grad_();
       const at::Tensor dy = at::randn({9, 130});
       call_layer_norm(x, {130}).backward(dy);
       EXPECT_TRUE(identical(x.grad(), std::get<0>(run_backward(call, dy))));
     }},
    // No rows: an invalid launch. Right: an empty y, and zeros for dW and dB.
    {"NoRows",
     [] {
       const Call call = make_call({0, 64});
       EXPECT_EQ(call_layer_norm(call.input, {64}, call.weight, call.bias).sizes(),
                 at::IntArrayRef({0, 64}));
       const auto [dx, dweight, dbias] = run_backward(call, at::empty({0, 64}));
       EXPECT_EQ(dx.sizes(), at::IntArrayRef({0, 64}));
       EXPECT_TRUE(at::equal(dweight, at::zeros({64})));
       EXPECT_TRUE(at::equal(dbias, at::zeros({64})));
     }},
    // Sums of half precision in half precision: beyond 65504, or without digits.
    {"HalfPrecisionSumsBeyondItsRange",
     [] {
       Call call = make_call({4, 40000}, 1, at::kHalf, at::kHalf);
       call.input = at::rand({4, 40000}).mul_(1000).add_(500).to(at::kHalf);  // Σx ≈ 4·10⁷
       expect_right(call);
       Call many_rows = make_call({5000, 8}, 1, at::kHalf, at::kFloat);
       expect_right(many_rows, at::full({5000, 8}, 100, at::kHalf));  // dB = 5·10⁵
       EXPECT_TRUE(
           at::equal(std::get<2>(run_backward(many_rows, at::full({5000, 8}, 100, at::kHalf))),
                     at::full({8}, 5e5f)));
     }},
    // Double backward was an error, or silently wrong. (In full: tests of autograd, and
    // gradgradcheck
    // from Python.)
    {"DoubleBackward",
     [] {
       const Call call = make_call({3, 6}, 1, at::kDouble, at::kDouble);
       const auto second = [&](auto&& norm) {
         const at::Tensor x = call.input.clone().requires_grad_();
         const auto first = torch::autograd::grad({norm(x).pow(3).sum()}, {x}, {}, true, true);
         return torch::autograd::grad({first[0].pow(2).sum()}, {x})[0];
       };
       const at::Tensor ours = second(
           [&](const at::Tensor& x) { return call_layer_norm(x, {6}, call.weight, call.bias); });
       const at::Tensor aten = second(
           [&](const at::Tensor& x) { return at::layer_norm(x, {6}, call.weight, call.bias); });
       EXPECT_TRUE(at::allclose(ours, aten, 1e-9, 1e-9));
     }},
    // A fast path without a backward: training went on with a gradient missing.
    {"EveryPathHasAGradient",
     [] {
       for (const at::ScalarType dtype : kDTypes) {
         for (const Shape& shape : {Shape{1, 64}, Shape{512, 256}, Shape{2, 40920}, Shape{7, 1}}) {
           for (const bool affine : {true, false}) {
             Call call = make_call(shape, 1, dtype, dtype);
             const at::Tensor x = call.input.clone().requires_grad_();
             if (affine) call.weight->requires_grad_();
             const at::Tensor y = affine ? call_layer_norm(x, {shape[1]}, call.weight, call.bias)
                                         : call_layer_norm(x, {shape[1]});
             ASSERT_TRUE(y.requires_grad());
             y.backward(at::ones_like(y));
             EXPECT_TRUE(x.grad().defined());
             EXPECT_EQ(call.weight->grad().defined(), affine);
           }
         }
       }
     }},
    // Backward of inputs with more than two dimensions took M and N from the wrong ones.
    {"ManyLeadingDimensions",
     [] {
       expect_right(make_call({2, 3, 4, 96}));
       expect_right(make_call({2, 3, 4, 96}, 2));
       expect_right(make_call({2, 3, 4, 96}, 3));
     }},
    // x̂ recovered from y by a division by weight: NaN where it is 0.
    {"WeightWithZeros",
     [] {
       Call call = make_call({6, 100});
       call.weight->slice(0, 0, 100, 3).zero_();
       expect_right(call);
       call.weight->zero_();
       expect_right(call);
     }},
    // A cache of tuned configs answered for another shape, dtype or alignment. Problems that differ
    // in one property, one after the other: each must get a config that can run it.
    {"ACachedChoiceIsNeverAnothersChoice",
     [] {
       const at::Tensor buffer = at::randn({64 * 1031 + 1});
       for (int round = 0; round < 2; ++round) {
         for (const std::int64_t rows : {64, 63, 1}) {
           for (const std::int64_t cols : {1031, 1024, 1}) {
             for (const std::int64_t offset : {0, 1}) {
               for (const at::ScalarType dtype : kDTypes) {
                 Call call = make_call({rows, cols}, 1, dtype, accumulate_dtype(dtype));
                 call.input = buffer.to(dtype).narrow(0, offset, rows * cols).view({rows, cols});
                 expect_right(call);
                 call.weight.reset();
                 expect_right(call);
               }
             }
           }
         }
       }
       // A config forced for wide rows does not linger for narrow ones.
       {
         const ScopedForcedConfig forced(on_gpu() ? "forward=gpu_forward_stream"
                                                  : "forward=cpu_forward_split:split=16");
         EXPECT_THAT(call_selected_config("forward", buffer.narrow(0, 0, 1031), {1031}),
                     HasSubstr("source=forced"));
       }
       EXPECT_THAT(call_selected_config("forward", buffer.narrow(0, 0, 1031), {1031}),
                   Not(HasSubstr("source=forced")));
     }},
    // mean and rstd of meta tensors had another dtype or stride than the real ones.
    {"MetaTensorsAnswerAsRealOnes",
     [] {
       const auto on_meta = [](const MaybeTensor& tensor) -> MaybeTensor {
         if (!tensor) return {};
         return at::empty_strided(tensor->sizes(), tensor->strides(),
                                  tensor->options().device(at::kMeta));
       };
       const auto expect_alike = [](const Tensors3& meta, const Tensors3& real) {
         const auto check = [](const at::Tensor& m, const at::Tensor& r) {
           ASSERT_EQ(m.defined(), r.defined());
           if (!r.defined()) return;
           EXPECT_TRUE(m.is_meta());
           EXPECT_EQ(m.scalar_type(), r.scalar_type());
           EXPECT_EQ(m.sizes(), r.sizes());
           EXPECT_EQ(m.strides(), r.strides());
         };
         check(std::get<0>(meta), std::get<0>(real));
         check(std::get<1>(meta), std::get<1>(real));
         check(std::get<2>(meta), std::get<2>(real));
       };
       for (const at::ScalarType dtype : kDTypes) {
         for (const Shape& shape :
              {Shape{2, 3, 8}, Shape{0, 8}, Shape{0, 1}, Shape{3, 0}, Shape{5}}) {
           for (const Mask mask : {kAllGrads, Mask{true, false, true}, Mask{false, true, false}}) {
             const Call real = make_call(shape, 1, dtype, dtype);
             Call meta = real;
             meta.input = *on_meta(real.input);
             meta.weight = on_meta(real.weight);
             meta.bias = on_meta(real.bias);
             expect_alike(run_forward(meta), run_forward(real));
             for (const std::string& op : kBackwardOps) {
               expect_alike(run_backward(meta, meta.input, op, mask),
                            run_backward(real, real.input, op, mask));
             }
           }
         }
       }
       Call permuted = make_call({4, 6, 8});
       permuted.input = permuted.input.transpose(0, 1);
       Call meta = permuted;
       meta.input = *on_meta(permuted.input);
       meta.weight = on_meta(permuted.weight);
       meta.bias = on_meta(permuted.bias);
       expect_alike(run_forward(meta), run_forward(permuted));
       expect_alike(run_backward(meta, meta.input), run_backward(permuted, permuted.input));
     }},
    // bf16 or f16 input with f32 weights was refused, or its weights were read as bf16.
    {"SixteenBitInputWithFloatWeights",
     [] {
       for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
         expect_right(make_call({33, 1000}, 1, dtype, at::kFloat));
       }
     }},
    // A division that rounded down left the last columns out.
    {"LastColumnsOfOddWidths",
     [] {
       for (const std::int64_t cols : {1600, 1601, 63, 65, 3584, 4095}) {
         for (const at::ScalarType dtype : kDTypes) {
           const Call call = make_call({3, cols}, 1, dtype, dtype);
           expect_right(call);
           const at::Tensor dbias = std::get<2>(run_backward(call, at::ones({3, cols}, dtype)));
           EXPECT_TRUE(at::equal(dbias, at::full({cols}, 3, dtype)));
         }
       }
     }},
    // An input that needs no gradient was an error. Right: dW and dB alone.
    {"InputWithoutGradient",
     [] {
       Call call = make_call({8, 96});
       const at::Tensor dy = at::randn({8, 96});
       call.weight->requires_grad_();
       call.bias->requires_grad_();
       call_layer_norm(call.input, {96}, call.weight, call.bias).backward(dy);
       EXPECT_FALSE(call.input.grad().defined());
       const auto verdict = judge(call, dy, {at::Tensor(), call.weight->grad(), call.bias->grad()});
       EXPECT_TRUE(verdict.ok()) << verdict.describe();
       EXPECT_GT(call.weight->grad().abs().max().item<float>(), 0.1);
     }},
    // "Gradients are zero", with y.sum() as the loss. They are: Σy does not depend on x without a
    // weight. A random gradient shows that they are not zero otherwise.
    {"GradientOfASumIsZeroAndOthersAreNot",
     [] {
       Call call = make_call({8, 96});
       call.weight.reset();
       const at::Tensor of_sum = std::get<0>(run_backward(call, at::ones({8, 96})));
       EXPECT_LT(of_sum.abs().max().item<float>(), 1e-5);
       const at::Tensor of_random = std::get<0>(run_backward(call, at::randn({8, 96})));
       EXPECT_GT(of_random.abs().min().item<float>(), 0);
       EXPECT_GT(of_random.abs().mean().item<float>(), 0.5);
     }},
};

class Reports : public ::testing::TestWithParam<Report> {};
INSTANTIATE_TEST_SUITE_P(Elsewhere, Reports, ::testing::ValuesIn(kReports),
                         [](const auto& test) { return std::string(test.param.name); });
TEST_P(Reports, DoesNotHappenHere) { GetParam().check(); }

}  // namespace
}  // namespace hipnorm::testing
