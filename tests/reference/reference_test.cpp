// Who judges the judge: number formats against literals and exhaustively, LayerNorm against numbers
// worked out by hand and against difference quotients, and verdicts against seeded errors.
#include "tests/reference/reference.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/reference/judge.h"
#include "tests/reference/number_format.h"

namespace hipnorm::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumberFormat, LiteralsOfHalf) {
  EXPECT_EQ(from_half(0x3c00), 1.0);
  EXPECT_EQ(from_half(0xc000), -2.0);
  EXPECT_EQ(from_half(0x3555), 0x1.554p-2);
  EXPECT_EQ(from_half(0x7bff), 65504.0);
  EXPECT_EQ(from_half(0x0001), 0x1p-24);
  EXPECT_EQ(from_half(0x03ff), 0x1.ff8p-15);
  EXPECT_EQ(from_half(0xfc00), -kInfinity);
  EXPECT_TRUE(std::isnan(from_half(0x7e01)));
  EXPECT_TRUE(std::signbit(from_half(0x8000)));
}

TEST(NumberFormat, LiteralsOfBfloat16) {
  EXPECT_EQ(from_bfloat16(0x3f80), 1.0);
  EXPECT_EQ(from_bfloat16(0x4049), 3.140625);
  EXPECT_EQ(from_bfloat16(0x7f7f), 0x1.fep127);
  EXPECT_EQ(from_bfloat16(0x0001), 0x1p-133);
  EXPECT_EQ(from_bfloat16(0xff80), -kInfinity);
}

TEST(NumberFormat, EveryHalfAndBfloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    if (!std::isnan(from_half(b))) {
      ASSERT_EQ(to_half(from_half(b)), b);
    }
    if (!std::isnan(from_bfloat16(b))) {
      ASSERT_EQ(to_bfloat16(from_bfloat16(b)), b);
    }
  }
}

// Between every two neighbours: below the middle down, above up, the middle to the even one.
TEST(NumberFormat, RoundsToNearestEven) {
  const auto check = [](auto decode, auto encode, std::uint32_t last_finite) {
    for (std::uint32_t bits = 0; bits < last_finite; ++bits) {
      const auto low = static_cast<std::uint16_t>(bits);
      const auto high = static_cast<std::uint16_t>(bits + 1);
      const double middle = (decode(low) + decode(high)) / 2;  // exact in double
      ASSERT_EQ(encode(middle), (bits & 1) != 0 ? high : low);
      ASSERT_EQ(encode(std::nextafter(middle, 0)), low);
      ASSERT_EQ(encode(std::nextafter(middle, kInfinity)), high);
      ASSERT_EQ(encode(-middle), 0x8000 | ((bits & 1) != 0 ? high : low));
    }
  };
  check(from_half, to_half, 0x7bff);
  check(from_bfloat16, to_bfloat16, 0x7f7f);
  EXPECT_EQ(to_half(65519.99), 0x7bff);
  EXPECT_EQ(to_half(65520.0), 0x7c00);
  EXPECT_EQ(to_bfloat16(1e300), 0x7f80);
}

TEST(NumberFormat, SpacingIsTheDistanceToTheNextNumber) {
  EXPECT_EQ(ulp(DType::f32, 1.0), std::nextafter(1.0f, 2.0f) - 1.0f);
  EXPECT_EQ(ulp(DType::f32, -1000.0), std::nextafter(1000.0f, 2000.0f) - 1000.0f);
  EXPECT_EQ(ulp(DType::f64, 3.0), std::nextafter(3.0, 4.0) - 3.0);
  EXPECT_EQ(ulp(DType::bf16, 1.5), 0x1p-7);
  EXPECT_EQ(ulp(DType::f16, 0.0), 0x1p-24);
  EXPECT_EQ(ulp(DType::f16, 0x1p-20), 0x1p-24);
  EXPECT_EQ(unit_roundoff(DType::f32), 0x1p-24);
  EXPECT_EQ(largest_finite(DType::f32), std::numeric_limits<float>::max());
}

Matrix matrix(const std::vector<double>& v, std::int64_t stride) {
  return {DType::f64, v.data(), stride};
}
Vector vector(const std::vector<double>& v) { return {DType::f64, v.data()}; }

// x = (1, 3), (2, 2): means 2 and 2, variances 1 and 0. eps = 3 makes rstd = 1/2 and 1/√3.
TEST(Reference, ForwardByHand) {
  const std::vector<double> x = {1, 3, 2, 2}, weight = {4, 10}, bias = {1, -1};
  const ForwardTruth truth = forward({.rows = 2,
                                      .cols = 2,
                                      .x = matrix(x, 2),
                                      .weight = vector(weight),
                                      .bias = vector(bias),
                                      .eps = 3});
  EXPECT_EQ(truth.mean, (std::vector<double>{2, 2}));
  EXPECT_EQ(truth.rstd[0], 0.5);
  EXPECT_DOUBLE_EQ(truth.rstd[1], 1 / std::sqrt(3.0));
  EXPECT_EQ(truth.y, (std::vector<double>{-1, 4, 1, -1}));
}

// x̂ = (−1/2, 1/2); g = dy·γ = (8, 30); c1 = 19; c2 = (−4 + 15)/2 = 5.5;
// dx = ½(8 − 19 + 2.75, 30 − 19 − 2.75).
TEST(Reference, BackwardByHand) {
  const std::vector<double> x = {1, 3}, dy = {2, 3}, weight = {4, 10};
  const BackwardTruth truth = backward({.rows = 1,
                                        .cols = 2,
                                        .dy = matrix(dy, 2),
                                        .x = matrix(x, 2),
                                        .weight = vector(weight),
                                        .mean = {},
                                        .rstd = {},
                                        .eps = 3});
  EXPECT_EQ(truth.dx, (std::vector<double>{-4.125, 4.125}));
  EXPECT_EQ(truth.dweight, (std::vector<double>{-1, 1.5}));
  EXPECT_EQ(truth.dbias, (std::vector<double>{2, 3}));
  EXPECT_EQ(truth.dweight_magnitude, (std::vector<double>{1, 1.5}));
}

std::vector<double> normal(std::size_t n, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(mean, deviation);
  std::vector<double> values(n);
  for (double& v : values) v = distribution(engine);
  return values;
}

double loss(const std::vector<double>& x, const std::vector<double>& weight,
            const std::vector<double>& bias, const std::vector<double>& dy) {
  const std::vector<double> y = forward({.rows = 3,
                                         .cols = 5,
                                         .x = matrix(x, 5),
                                         .weight = vector(weight),
                                         .bias = vector(bias),
                                         .eps = 1e-3})
                                    .y;
  double total = 0;
  for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
  return total;
}

TEST(Reference, BackwardIsTheDerivativeOfForward) {
  const auto dy = normal(15, 2);
  auto x = normal(15, 1), weight = normal(5, 3), bias = normal(5, 4);
  const BackwardTruth truth = backward({.rows = 3,
                                        .cols = 5,
                                        .dy = matrix(dy, 5),
                                        .x = matrix(x, 5),
                                        .weight = vector(weight),
                                        .mean = {},
                                        .rstd = {},
                                        .eps = 1e-3});
  constexpr double kStep = 1e-5;  // error of the central difference about 1e-10
  const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      const double kept = input[i];
      input[i] = kept + kStep;
      const double above = loss(x, weight, bias, dy);
      input[i] = kept - kStep;
      const double below = loss(x, weight, bias, dy);
      input[i] = kept;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-8) << i;
    }
  };
  check(x, truth.dx);
  check(weight, truth.dweight);
  check(bias, truth.dbias);
}

TEST(Reference, EdgesFollowTheRules) {
  const float nan = std::nanf("");
  const std::vector<float> x = {1, nan, 3, 5, 5, 5, 1e30f, -1e30f, 0, 1, 2, 3};
  const std::vector<double> bias = {1, 2, 3};
  const ForwardTruth truth = forward({.rows = 4,
                                      .cols = 3,
                                      .x = {DType::f32, x.data(), 3},
                                      .weight = {},
                                      .bias = vector(bias),
                                      .eps = 0});
  for (int c = 0; c < 3; ++c) EXPECT_TRUE(std::isnan(truth.y[std::size_t(c)]));
  EXPECT_EQ(std::vector<double>(truth.y.begin() + 3, truth.y.begin() + 6), bias);  // constant
  EXPECT_EQ(truth.rstd[2], 0);  // variance 6.7e59
  EXPECT_EQ(std::vector<double>(truth.y.begin() + 6, truth.y.begin() + 9), bias);
  EXPECT_NEAR(truth.y[9], 1 - std::sqrt(1.5), 1e-15);
}

// A correctly rounded f32 result, to be spoilt.
struct Sample {
  static constexpr std::int64_t kRows = 64, kCols = 100;
  std::vector<float> x, dy, y, mean, rstd, dx, dweight, dbias;
  Sample() {
    const auto narrow = [](const std::vector<double>& v) {
      return std::vector<float>(v.begin(), v.end());
    };
    x = narrow(normal(kRows * kCols, 7, -2.3, 0.5));
    dy = narrow(normal(kRows * kCols, 8));
    const ForwardTruth f = forward(forward_inputs());
    const BackwardTruth b = backward(backward_inputs());
    y = narrow(f.y), mean = narrow(f.mean), rstd = narrow(f.rstd);
    dx = narrow(b.dx), dweight = narrow(b.dweight), dbias = narrow(b.dbias);
  }
  ForwardInputs forward_inputs() const {
    return {
        .rows = kRows, .cols = kCols, .x = {DType::f32, x.data(), kCols}, .weight = {}, .bias = {}};
  }
  BackwardInputs backward_inputs() const {
    return {.rows = kRows,
            .cols = kCols,
            .dy = {DType::f32, dy.data(), kCols},
            .x = {DType::f32, x.data(), kCols},
            .weight = {},
            .mean = {},
            .rstd = {}};
  }
  ForwardVerdict judge_y(int threads = 1) const {
    return judge_forward(
        forward_inputs(),
        {{DType::f32, y.data(), kCols}, {DType::f32, mean.data()}, {DType::f32, rstd.data()}},
        threads);
  }
  BackwardVerdict judge_gradients(int threads = 1) const {
    return judge_backward(
        backward_inputs(),
        {{DType::f32, dx.data(), kCols}, {DType::f32, dweight.data()}, {DType::f32, dbias.data()}},
        threads);
  }
};

TEST(Judge, AcceptsTheRoundedTruthOnAnyNumberOfThreads) {
  const Sample sample;
  for (const int threads : {1, 2, 3, 1000}) {
    EXPECT_TRUE(sample.judge_y(threads).ok()) << sample.judge_y(threads).describe();
    EXPECT_TRUE(sample.judge_gradients(threads).ok()) << sample.judge_gradients(threads).describe();
  }
}

TEST(Judge, FindsOneWrongElementAndSaysWhere) {
  for (const float wrong : {1e-5f, 1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    Sample sample;
    sample.y[37 * Sample::kCols + 99] += wrong;
    sample.dx[63 * Sample::kCols] += wrong;
    sample.mean[5] += wrong;
    sample.rstd[6] += wrong;
    sample.dweight[50] += 10 * wrong;
    sample.dbias[0] += 10 * wrong;
    for (const int threads : {1, 2}) {
      const ForwardVerdict f = sample.judge_y(threads);
      EXPECT_FALSE(f.y.ok() || f.mean.ok() || f.rstd.ok()) << wrong;
      EXPECT_EQ(f.y.row, 37);
      EXPECT_EQ(f.y.col, 99);
      EXPECT_EQ(f.mean.row, 5);
      EXPECT_EQ(f.rstd.row, 6);
      const BackwardVerdict b = sample.judge_gradients(threads);
      EXPECT_FALSE(b.dx.ok() || b.dweight.ok() || b.dbias.ok()) << wrong;
      EXPECT_EQ(b.dx.row, 63);
      EXPECT_EQ(b.dx.col, 0);
      EXPECT_EQ(b.dweight.col, 50);
      EXPECT_EQ(b.dbias.col, 0);
    }
  }
}

TEST(Judge, FindsARowThatWasLeftOutOfTheColumnSums) {
  Sample sample;
  for (std::int64_t c = 0; c < Sample::kCols; ++c) {
    sample.dbias[std::size_t(c)] -= sample.dy[std::size_t(17 * Sample::kCols + c)];
  }
  EXPECT_FALSE(sample.judge_gradients().dbias.ok());
  EXPECT_TRUE(sample.judge_gradients().dweight.ok());
}

// 16-bit outputs: the truth's neighbours lie within 1 ulp, the numbers after them do not.
TEST(Judge, SixteenBitOutputsHaveOneUlp) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> x(100), y(100);
    const auto values = normal(100, 9);
    for (int i = 0; i < 100; ++i) store(dtype, x.data(), i, values[std::size_t(i)]);
    const ForwardInputs in{
        .rows = 1, .cols = 100, .x = {dtype, x.data(), 100}, .weight = {}, .bias = {}};
    const ForwardTruth truth = forward(in);
    for (const int away : {0, 1, 2, -2}) {
      for (int i = 0; i < 100; ++i) store(dtype, y.data(), i, truth.y[std::size_t(i)]);
      y[42] = static_cast<std::uint16_t>(y[42] + away);
      const ForwardVerdict verdict = judge_forward(in, {{dtype, y.data(), 100}, {}, {}});
      if (away == 0) {
        EXPECT_TRUE(verdict.ok()) << verdict.describe();
      } else if (away != 1) {  // the next number may be within 1 ulp of the truth, or not
        EXPECT_FALSE(verdict.ok()) << away;
        EXPECT_EQ(verdict.y.col, 42);
      }
    }
  }
}

TEST(Judge, NotANumberAndInfinityWhereTheyBelongOnly) {
  Sample sample;
  sample.x[3 * Sample::kCols + 8] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(sample.judge_y().y.ok());  // finite where NaN must be
  for (std::int64_t c = 0; c < Sample::kCols; ++c) {
    sample.y[std::size_t(3 * Sample::kCols + c)] = std::nanf("");
  }
  sample.mean[3] = sample.rstd[3] = std::nanf("");
  EXPECT_TRUE(sample.judge_y().ok()) << sample.judge_y().describe();
  sample.y[4 * Sample::kCols] = std::nanf("");  // the next row
  EXPECT_EQ(sample.judge_y().y.row, 4);
}

TEST(Judge, OverflowOfTheOutputTypeIsInfinity) {
  const std::vector<float> x = {-1, 1}, weight = {1e5f, 1e5f};
  const ForwardInputs in{.rows = 1,
                         .cols = 2,
                         .x = {DType::f32, x.data(), 2},
                         .weight = {DType::f32, weight.data()},
                         .bias = {},
                         .eps = 0};
  std::array<std::uint16_t, 2> y = {0xfc00, 0x7c00};
  EXPECT_TRUE(judge_forward(in, {{DType::f16, y.data(), 2}, {}, {}}).ok());
  y = {0x7c00, 0x7c00};
  EXPECT_FALSE(judge_forward(in, {{DType::f16, y.data(), 2}, {}, {}}).ok());
}

}  // namespace
}  // namespace hipnorm::reference
