// Forward: every variant and dtype over shapes, layouts, optional parameters and settings.
#include <gtest/gtest.h>

#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

constexpr Affine kAffine[] = {{true, true}, {true, false}, {false, true}, {false, false}};

class Forward : public ::testing::TestWithParam<Kernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Forward, ::testing::ValuesIn(affordable(forward_kernels())),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Forward, OddShapes) {
  const Kernel kernel = GetParam();
  for (const Shape shape : small_shapes()) {
    for (const Layout layout : {Layout::dense, Layout::misaligned}) {
      const LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight, layout);
      for (const Affine affine : kAffine) {
        check_forward(data, affine,
                      configs_for(kernel.variant, data.problem(kernel.op, affine), Effort::few));
      }
    }
  }
}

TEST_P(Forward, LargeShapes) {
  const Kernel kernel = GetParam();
  for (const Shape shape : large_shapes()) {
    for (const Layout layout : {Layout::aligned_gap, Layout::misaligned}) {
      const LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight, layout);
      check_forward(data, {},
                    configs_for(kernel.variant, data.problem(kernel.op, {}), Effort::few));
      check_forward(
          data, {false, false},
          configs_for(kernel.variant, data.problem(kernel.op, {false, false}), Effort::one));
    }
  }
}

TEST_P(Forward, EveryCombinationOfParameters) {
  const Kernel kernel = GetParam();
  for (const Shape shape : {Shape{13, 333}, Shape{6, 1025}}) {
    const LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight);
    check_forward(data, {}, configs_for(kernel.variant, data.problem(kernel.op, {}), Effort::many));
  }
}

// An expanded input: every row is the same, and so must be every row of the result.
TEST_P(Forward, StrideZero) {
  const Kernel kernel = GetParam();
  const std::int64_t cols = expanded_cols();
  const LayerData data(6, cols, kernel.x, kernel.weight, Layout::expanded);
  const auto configs = configs_for(kernel.variant, data.problem(kernel.op, {}), Effort::few);
  for (const ForwardResult& result : check_forward(data, {}, configs)) {
    for (std::int64_t i = cols; i < 6 * cols; ++i) ASSERT_EQ(result.y[i], result.y[i % cols]) << i;
  }
}

// x = ±1 in equal numbers and eps = 0: x̂ = ±1 without any rounding, y = ±weight + bias. With f32
// weights that have more bits than a 16-bit y, this compares the rounding to nearest even itself,
// and with bits chosen so, its ties.
TEST_P(Forward, RoundsToNearestEven) {
  const Kernel kernel = GetParam();
  LayerData data(3, 1026, kernel.x, kernel.weight);
  data.eps = 0;
  for (std::int64_t r = 0; r < data.rows; ++r) {
    for (std::int64_t c = 0; c < data.cols; ++c) data.set_x(r, c, (c + r) % 2 == 0 ? 1 : -1);
  }
  for (std::int64_t c = 0; c < data.cols; ++c) {
    data.weight.set(c,
                    0.25 * (1 + double(c) * 0x1p-12));  // 2⁻¹⁴ apart: every case between two bf16
    data.bias.set(c, 1);
  }
  const auto configs = configs_for(kernel.variant, data.problem(kernel.op, {}), Effort::few);
  for (const ForwardResult& result : check_forward(data, {}, configs)) {
    for (std::int64_t r = 0; r < data.rows; ++r) {
      ASSERT_EQ(result.mean[r], 0);
      ASSERT_EQ(result.rstd[r], 1);
      for (std::int64_t c = 0; c < data.cols; ++c) {
        ASSERT_EQ(result.y[r * data.cols + c],
                  reference::round_to(kernel.x, data.get_x(r, c) * data.weight[c] + data.bias[c]))
            << r << ", " << c;
      }
    }
  }
}

// What the cost model would choose from: all of it must be right.
TEST(ForwardCandidates, AreAllRight) {
  const std::vector<Shape> shapes = quick()
                                        ? std::vector<Shape>{{6, 2000}}
                                        : std::vector<Shape>{{512, 256}, {3, 36864}, {257, 1000}};
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const Shape shape : shapes) {
      const LayerData data(shape.rows, shape.cols, type, type);
      check_forward(data, {}, candidates_for(data.problem(Op::forward, {})));
    }
  }
}

}  // namespace
}  // namespace hipnorm::testing
