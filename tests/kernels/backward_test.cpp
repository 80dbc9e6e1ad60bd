// Backward: every variant and dtype over shapes, layouts, gradient masks and settings.
#include <gtest/gtest.h>

#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

class Backward : public ::testing::TestWithParam<Kernel> {
 protected:
  const Kernel kernel = GetParam();
  LayerData make(Shape shape, Layout layout = Layout::dense) const {
    LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight, layout);
    data.save_statistics();
    return data;
  }
  std::vector<BackwardResult> check(const LayerData& data, Affine affine, GradMask grads,
                                    Effort effort) const {
    return check_backward(
        kernel.op, data, affine, grads,
        configs_for(kernel.variant, data.problem(kernel.op, affine, grads), effort));
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Backward, ::testing::ValuesIn(affordable(backward_kernels())),
                         [](const auto& test) { return name_of(test.param); });

// All eight masks, with and without a weight. (The gradient of an absent weight is well defined,
// and a kernel asked for it must give it.)
TEST_P(Backward, OddShapes) {
  for (const Shape shape : small_shapes()) {
    for (const Layout layout : {Layout::dense, Layout::misaligned}) {
      const LayerData data = make(shape, layout);
      for (const GradMask grads : kAllGradMasks) {
        check(data, {true, true}, grads, grads == kAllGrads ? Effort::few : Effort::one);
        check(data, {false, true}, grads, Effort::one);
      }
      check(data, {true, false}, kAllGrads, Effort::one);
      check(data, {false, false}, kAllGrads, Effort::one);
      check(data, {false, false}, {.dx = true}, Effort::few);
    }
  }
}

TEST_P(Backward, LargeShapes) {
  for (const Shape shape : large_shapes()) {
    for (const Layout layout : {Layout::aligned_gap, Layout::misaligned}) {
      const LayerData data = make(shape, layout);
      check(data, {}, kAllGrads, Effort::few);
      check(data, {}, {.dx = true}, Effort::one);
      check(data, {}, {.dweight = true, .dbias = true}, Effort::one);
      check(data, {false, false}, {.dx = true}, Effort::one);
    }
  }
}

TEST_P(Backward, EveryCombinationOfParameters) {
  for (const Shape shape : {Shape{13, 333}, Shape{6, 1025}}) {
    check(make(shape), {}, kAllGrads, quick() && !emulated() ? Effort::few : Effort::many);
  }
}

// An expanded gradient, as y.sum().backward() makes it, and an expanded input.
TEST_P(Backward, StrideZero) {
  const std::int64_t cols = expanded_cols();
  LayerData data(6, cols, kernel.x, kernel.weight, Layout::expanded);
  data.save_statistics();
  for (const BackwardResult& result : check(data, {}, kAllGrads, Effort::few)) {
    for (std::int64_t i = cols; i < 6 * cols; ++i) {
      ASSERT_EQ(result.dx[i], result.dx[i % cols]) << i;
    }
  }
}

// The mask decides what is written, never what is computed: the same config gives the same bits.
TEST_P(Backward, MasksDoNotChangeTheValues) {
  const LayerData data = make({37, 300});
  for (const Config& config :
       configs_for(kernel.variant, data.problem(kernel.op, {}, kAllGrads), Effort::few)) {
    const auto full = check_backward(kernel.op, data, {}, kAllGrads, std::span(&config, 1));
    for (const GradMask grads : kAllGradMasks) {
      const auto part = check_backward(kernel.op, data, {}, grads, std::span(&config, 1));
      if (grads.dx) {
        EXPECT_TRUE(part[0].dx.same_bits(full[0].dx));
      }
      if (grads.dweight) {
        EXPECT_TRUE(part[0].dweight.same_bits(full[0].dweight));
      }
      if (grads.dbias) {
        EXPECT_TRUE(part[0].dbias.same_bits(full[0].dbias));
      }
    }
  }
}

// What the cost model would choose from: all of it must be right.
TEST(BackwardCandidates, AreAllRight) {
  const std::vector<Shape> shapes = quick()
                                        ? std::vector<Shape>{{6, 2000}}
                                        : std::vector<Shape>{{512, 256}, {3, 36864}, {257, 1000}};
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Shape shape : shapes) {
      LayerData data(shape.rows, shape.cols, type, type);
      data.save_statistics();
      for (const Op op : {Op::backward, Op::backward_fused, Op::backward_two_kernel}) {
        check_backward(op, data, {}, kAllGrads, candidates_for(data.problem(op, {}, kAllGrads)));
      }
    }
  }
}

}  // namespace
}  // namespace hipnorm::testing
