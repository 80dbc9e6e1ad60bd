// Bounds say the same as the judge, element by element.
#include "tests/reference/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/reference/judge.h"
#include "tests/reference/number_format.h"

namespace hipnorm::reference {
namespace {

constexpr std::int64_t kRows = 9, kCols = 40;

struct Case {
  explicit Case(DType type) : dtype(type), x(bytes(kRows * kCols)), dy(x), weight(bytes(kCols)) {
    std::mt19937_64 engine(7);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      store(dtype, x.data(), i, -2.3 + 0.5 * normal(engine));
      store(dtype, dy.data(), i, normal(engine));
    }
    for (std::int64_t c = 0; c < kCols; ++c) store(dtype, weight.data(), c, normal(engine));
    for (std::int64_t c = 0; c < kCols; ++c) {
      store(dtype, x.data(), 1 * kCols + c, 3);                                       // constant
      store(dtype, x.data(), 3 * kCols + c, c % 2 == 0 ? largest_finite(dtype) : 0);  // huge
    }
    store(dtype, x.data(), 2 * kCols + 5, std::numeric_limits<double>::quiet_NaN());
  }
  std::vector<char> bytes(std::int64_t count) const {
    return std::vector<char>(static_cast<std::size_t>(count * size_of(dtype)));
  }
  ForwardInputs forward() const {
    return {.rows = kRows,
            .cols = kCols,
            .x = {dtype, x.data(), kCols},
            .weight = {dtype, weight.data()},
            .bias = {}};
  }
  BackwardInputs backward() const {
    return {.rows = kRows,
            .cols = kCols,
            .dy = {dtype, dy.data(), kCols},
            .x = {dtype, x.data(), kCols},
            .weight = {dtype, weight.data()},
            .mean = {},
            .rstd = {}};
  }
  DType dtype;
  std::vector<char> x, dy, weight;
};

bool allowed(const Bounds& bounds, std::int64_t i, double got) {
  const double low = load(bounds.dtype, bounds.low.data(), i);
  const double high = load(bounds.dtype, bounds.high.data(), i);
  if (std::isnan(low)) {
    return bounds.nan == Bounds::Nan::must_be_nan ? std::isnan(got) : !std::isfinite(got);
  }
  return low > high ? !std::isfinite(got) : low <= got && got <= high;
}

// Values on both sides of each border, and the extraordinary ones.
std::vector<double> candidates(const Bounds& bounds, std::int64_t i) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0, 1, kInfinity, -kInfinity,
                                std::numeric_limits<double>::quiet_NaN()};
  for (const auto* side : {&bounds.low, &bounds.high}) {
    const double border = load(bounds.dtype, side->data(), i);
    if (!std::isfinite(border)) continue;
    const double step = ulp(bounds.dtype, border);
    for (const double k : {-1.0, 0.0, 1.0}) {
      values.push_back(round_to(bounds.dtype, border + k * step));
    }
  }
  return values;
}

class BoundsAndJudge : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, BoundsAndJudge,
                         ::testing::Values(DType::f16, DType::bf16, DType::f32),
                         [](const auto& test) {
                           return test.param == DType::f16    ? "f16"
                                  : test.param == DType::bf16 ? "bf16"
                                                              : "f32";
                         });

TEST_P(BoundsAndJudge, AgreeOnForward) {
  const Case c(GetParam());
  const ForwardBounds bounds = forward_bounds(c.forward(), 2);
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    for (const double value : candidates(bounds.y, i)) {
      // The element alone: every other row is absent, the other columns of its row are right.
      std::vector<char> y = bounds.y.low;
      store(c.dtype, y.data(), i, value);
      ForwardInputs in = c.forward();
      const std::int64_t r = i / kCols;
      in.rows = 1;
      in.x.data = c.x.data() + r * kCols * size_of(c.dtype);
      ForwardOutputs out;
      out.y = {c.dtype, y.data() + r * kCols * size_of(c.dtype), kCols};
      const bool row_is_plain =
          load(c.dtype, bounds.y.low.data(), i) <= load(c.dtype, bounds.y.high.data(), i);
      const bool judged = judge_forward(in, out).ok();
      if (row_is_plain || r == 2) {
        ASSERT_EQ(judged, allowed(bounds.y, i, value)) << "y[" << i << "] = " << value;
      }
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (const double value : candidates(bounds.rstd, r)) {
      std::vector<char> rstd = bounds.rstd.low;
      store(DType::f32, rstd.data(), r, value);
      ForwardOutputs out;
      out.rstd = {DType::f32, rstd.data()};
      ASSERT_EQ(judge_forward(c.forward(), out).ok(), allowed(bounds.rstd, r, value))
          << "rstd[" << r << "] = " << value;
    }
  }
}

TEST_P(BoundsAndJudge, AgreeOnBackward) {
  Case c(GetParam());
  store(c.dtype, c.x.data(), 2 * kCols + 5, 1);  // else every dW and dB is NaN
  const BackwardBounds bounds = backward_bounds(c.backward(), c.dtype, 2);
  for (const auto& [bound, member] : {std::pair(&bounds.dweight, &BackwardOutputs::dweight),
                                      std::pair(&bounds.dbias, &BackwardOutputs::dbias)}) {
    for (std::int64_t i = 0; i < kCols; ++i) {
      for (const double value : candidates(*bound, i)) {
        std::vector<char> got = bound->low;
        store(c.dtype, got.data(), i, value);
        BackwardOutputs out;
        out.*member = {c.dtype, got.data()};
        ASSERT_EQ(judge_backward(c.backward(), out).ok(), allowed(*bound, i, value))
            << i << ": " << value;
      }
    }
  }
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    for (const double value : candidates(bounds.dx, i)) {
      std::vector<char> got = bounds.dx.low;
      store(c.dtype, got.data(), i, value);
      BackwardOutputs out;
      out.dx = {c.dtype, got.data(), kCols};
      ASSERT_EQ(judge_backward(c.backward(), out).ok(), allowed(bounds.dx, i, value))
          << "dX[" << i << "] = " << value;
    }
  }
}

}  // namespace
}  // namespace hipnorm::reference
