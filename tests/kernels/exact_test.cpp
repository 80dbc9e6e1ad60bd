// Column sums without a tolerance. A bound that grows with Σ|dy| lets one lost row hide among many;
// here every true result is an integer that f32 holds, so every bit is compared.
//
// Rows are half +1 and half −1, so with eps = 0 mean = 0, rstd = 1 and x̂ = x; dy is −1, 0 or 1.
// Then dW = Σdy·x and dB = Σdy are integers of magnitude ≤ M, exact in f32 in any order of
// summation for M < 2²⁴.
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

struct Sums {
  std::vector<std::int64_t> dweight, dbias;
};

// Fills x and dy; integer arithmetic only.
Sums fill(LayerData& data) {
  Sums sums{std::vector<std::int64_t>(std::size_t(data.cols)),
            std::vector<std::int64_t>(std::size_t(data.cols))};
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (std::int64_t r = 0; r < data.rows; ++r) {
    for (std::int64_t c = 0; c < data.cols; ++c) {
      state = state * 6364136223846793005 + 1442695040888963407;
      // Pairs of columns hold opposite signs. dy leans to +1, so that the sums grow with M.
      const int x = ((r * 7 + c / 2 * 3) / 2 + c) % 2 == 0 ? 1 : -1;
      const int dy = static_cast<int>((state >> 40) % 8);
      const int gradient = dy < 5 ? 1 : dy == 5 ? 0 : -1;
      data.set_x(r, c, x);
      data.set_dy(r, c, gradient);
      sums.dweight[std::size_t(c)] += x * gradient;
      sums.dbias[std::size_t(c)] += gradient;
    }
  }
  data.eps = 0;
  data.mean = Array(accumulate_type(data.x.dtype()), data.rows);
  data.rstd = Array(accumulate_type(data.x.dtype()), data.rows);
  for (std::int64_t r = 0; r < data.rows; ++r) {
    data.mean.set(r, 0);
    data.rstd.set(r, 1);
  }
  return sums;
}

class Exact : public ::testing::TestWithParam<Kernel> {
 protected:
  const Kernel kernel = GetParam();
  void check(Shape shape, Effort effort) const {
    LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight);
    const Sums sums = fill(data);
    for (const GradMask grads : {kAllGrads, GradMask{false, true, true}}) {
      for (const Config& config :
           configs_for(kernel.variant, data.problem(kernel.op, {}, grads), effort)) {
        SCOPED_TRACE(to_string(config) + " on " + to_string(data.problem(kernel.op, {}, grads)));
        const BackwardResult result = run_backward(kernel.op, data, {}, grads, config, ways() - 1);
        for (std::int64_t c = 0; c < data.cols; ++c) {
          ASSERT_EQ(result.dweight[c], double(sums.dweight[std::size_t(c)])) << "dW " << c;
          ASSERT_EQ(result.dbias[c], double(sums.dbias[std::size_t(c)])) << "dB " << c;
        }
      }
    }
  }
};
// f32 column sums of every input type; f64 has its own.
std::vector<Kernel> exact_kernels() {
  std::vector<Kernel> kernels = backward_kernels();
  std::erase_if(kernels, [](const Kernel& k) { return size_of(k.weight) == 2; });
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Exact, ::testing::ValuesIn(exact_kernels()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Exact, EveryRowCountsInEveryColumn) {
  for (const Shape shape : {Shape{1, 2}, Shape{2, 34}, Shape{3, 1538}, Shape{255, 66}}) {
    check(shape, Effort::few);
  }
  if (emulated()) return;
  for (const Shape shape : {Shape{1000, 130}, Shape{4099, 10}}) check(shape, Effort::few);
}

TEST_P(Exact, ManyRows) {
  check({(std::int64_t{1} << (emulated() ? 9 : 16)) + 1, 6}, Effort::one);
  if (!quick()) check({std::int64_t{1} << 20, 4}, Effort::one);
}

// Just below 2²⁴ rows, the most that f32 counts exactly.
class ExactMostRows : public Exact {};
INSTANTIATE_TEST_SUITE_P(Kernels, ExactMostRows,
                         ::testing::ValuesIn(only(backward_kernels(), DType::f32, DType::f32)),
                         [](const auto& test) { return name_of(test.param); });
TEST_P(ExactMostRows, TwoToThe24MinusOne) {
  // Under a sanitizer 2²⁴ rows would take minutes, in the emulator hours.
  check({(std::int64_t{1} << (emulated() ? 10 : quick() ? 18 : 24)) - 1, 2}, Effort::one);
}

}  // namespace
}  // namespace hipnorm::testing
