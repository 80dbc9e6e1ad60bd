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

// Every config of the kernel that `effort` names, with dX and without it: the loops differ.
void check(const Kernel& kernel, const LayerData& data, const Sums& sums, Effort effort) {
  for (const GradMask grads : {kAllGrads, GradMask{false, true, true}}) {
    const Problem problem = data.problem(kernel.op, {}, grads);
    for (const Config& config : configs_for(kernel.variant, problem, effort)) {
      SCOPED_TRACE(to_string(config) + " on " + to_string(problem));
      const BackwardResult result = run_backward(kernel.op, data, {}, grads, config, ways() - 1);
      for (std::int64_t c = 0; c < data.cols; ++c) {
        ASSERT_EQ(result.dweight[c], double(sums.dweight[std::size_t(c)])) << "dW " << c;
        ASSERT_EQ(result.dbias[c], double(sums.dbias[std::size_t(c)])) << "dB " << c;
      }
    }
  }
}

// All kernels of the two types on one shape: what takes time at many rows is to make the data.
void check_all(Shape shape, DType x, DType weight, Effort effort) {
  LayerData data(shape.rows, shape.cols, x, weight, Layout::dense, Fill::nothing);
  const Sums sums = fill(data);
  for (const Kernel& kernel : only(backward_kernels(), x, weight)) {
    check(kernel, data, sums, effort);
  }
}

// f32 column sums of every input type; f64 has its own.
std::vector<Kernel> exact_kernels() {
  std::vector<Kernel> kernels = backward_kernels();
  std::erase_if(kernels, [](const Kernel& k) { return size_of(k.weight) == 2; });
  return kernels;
}
class Exact : public ::testing::TestWithParam<Kernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Exact, ::testing::ValuesIn(exact_kernels()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Exact, EveryRowCountsInEveryColumn) {
  std::vector<Shape> shapes = {{1, 2}, {2, 34}, {3, 1538}, {255, 66}};
  if (!emulated()) shapes.insert(shapes.end(), {{1000, 130}, {4099, 10}});
  for (const Shape shape : shapes) {
    LayerData data(shape.rows, shape.cols, GetParam().x, GetParam().weight);
    const Sums sums = fill(data);
    check(GetParam(), data, sums, Effort::few);
  }
}

// Rows of up to 96 bytes, 24 columns of f32, go one in each lane on the CPU (kernels/cpu/lanes.h):
// 6 and 4 columns test those, 66 and 50 the loops along the row, with a last packet that its end
// cuts.
class ExactManyRows : public ::testing::TestWithParam<DType> {
 protected:
  const DType x = GetParam(), weight = accumulate_type(x);
};
INSTANTIATE_TEST_SUITE_P(Types, ExactManyRows,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(ExactManyRows, TwoToThe16AndOne) {
  const std::int64_t rows = (std::int64_t{1} << (emulated() ? 9 : 16)) + 1;
  check_all({rows, 6}, x, weight, Effort::one);
  if (!emulated()) check_all({rows, 66}, x, weight, Effort::few);
}

TEST_P(ExactManyRows, TwoToThe20AndOne) {
  if (quick()) GTEST_SKIP() << "takes minutes under a sanitizer, hours in the emulator";
  constexpr std::int64_t kRows = (std::int64_t{1} << 20) + 1;
  check_all({kRows, 4}, x, weight, Effort::one);
  // The loops of f64 are f32's, and would take a gigabyte; those of f16 are bf16's, at 16 bytes
  // with slow conversions.
  if (x == DType::f32 || x == DType::bf16) check_all({kRows, 50}, x, weight, Effort::one);
}

// Just below 2²⁴ rows, the most that f32 counts exactly. Two columns: x, dy and dX are 400 MB, and
// 10 GB with 50.
TEST(ExactMostRows, TwoToThe24MinusOne) {
  // Under a sanitizer 2²⁴ rows would take minutes, in the emulator hours.
  check_all({(std::int64_t{1} << (emulated() ? 10
                                  : quick()  ? 18
                                             : 24)) -
                 1,
             2},
            DType::f32, DType::f32, Effort::one);
}

}  // namespace
}  // namespace hipnorm::testing
