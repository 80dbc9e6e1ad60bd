// Rows at the edges of arithmetic: large means, huge and tiny values, zeros, Inf and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/kernels/configs.h"
#include "tests/kernels/parallel.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The kernels of both directions, each judged against the truth of the data it gets.
class Kernels {
 public:
  Kernels(DType x, DType weight)
      : forward_(only(forward_kernels(), x, weight)),
        backward_(only(backward_kernels(), x, weight)) {}

  void forward(
      const LayerData& data,
      const std::function<void(const ForwardResult&)>& also = [](const ForwardResult&) {}) const {
    for (const Kernel& k : forward_) {
      const auto configs = configs_for(k.variant, data.problem(k.op, {}), Effort::few);
      for (const ForwardResult& result : check_forward(data, {}, configs)) also(result);
    }
  }
  void backward(
      LayerData& data,
      const std::function<void(const BackwardResult&)>& also = [](const BackwardResult&) {}) const {
    if (data.mean.count() == 0) data.save_statistics();
    for (const Kernel& k : backward_) {
      const auto configs = configs_for(k.variant, data.problem(k.op, {}, kAllGrads), Effort::few);
      for (const BackwardResult& result : check_backward(k.op, data, {}, kAllGrads, configs)) {
        also(result);
      }
    }
  }
  void both(LayerData& data) const {
    forward(data);
    backward(data);
  }

 private:
  std::vector<Kernel> forward_, backward_;
};

void fill_rows(LayerData& data, const std::function<double(std::int64_t, std::int64_t)>& value) {
  for (std::int64_t r = 0; r < data.rows; ++r) {
    for (std::int64_t c = 0; c < data.cols; ++c) data.set_x(r, c, value(r, c));
  }
}
std::function<double(std::int64_t, std::int64_t)> normal(double mean, double deviation) {
  return
      [=, engine = std::mt19937_64(5), distribution = std::normal_distribution<double>()](
          std::int64_t, std::int64_t) mutable { return mean + deviation * distribution(engine); };
}

class Special : public ::testing::TestWithParam<DType> {
 protected:
  const DType type = GetParam();
  const Kernels kernels = Kernels(type, type);
  bool wide_exponent() const { return type != DType::f16; }
};
INSTANTIATE_TEST_SUITE_P(DTypes, Special,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// E[x²] − E[x]² in f32 would leave nothing of these variances, or something negative.
TEST_P(Special, LargeMean) {
  LayerData spread_of_cents(3, quick() ? 4096 : 32768, type, type);
  fill_rows(spread_of_cents, normal(100, 0.01));
  kernels.both(spread_of_cents);
  LayerData few(5, 4, type, type);
  fill_rows(few, normal(2000, 1));
  kernels.both(few);
  LayerData consecutive(2, 4, type, type);
  fill_rows(consecutive, [](std::int64_t r, std::int64_t c) { return 40000. + double(r + c); });
  kernels.both(consecutive);
}

// A first element far from all others must not spoil the row that is summed relative to it.
TEST_P(Special, FirstElementIsAnOutlier) {
  LayerData data(4, 3000, type, type);
  data.set_x(0, 0, 1000);
  data.set_x(1, 0, -30000);
  data.set_x(2, 2999, 30000);
  data.set_x(3, 64, 5000);
  kernels.both(data);
}

// Sums of 16-bit rows beyond what the 16-bit format holds.
TEST_P(Special, LongRowsOfLargeValues) {
  LayerData data(2, 20000, type, type);
  fill_rows(data, [](std::int64_t, std::int64_t c) { return 60000. + double(c % 7) * 256; });
  kernels.both(data);
}

constexpr std::int64_t kNarrowCols = 7;  // rows of it go one in each lane of a vector

TEST_P(Special, ConstantRowsGiveTheBias) {
  const std::vector<double> constants = {0, 0.1, -1000, 65504, 1e-40, -3e38, 1.5};
  for (const std::int64_t cols : {std::int64_t{777}, std::int64_t{1000}, kNarrowCols}) {
    LayerData data(std::int64_t(constants.size()), cols, type, type);
    fill_rows(data, [&](std::int64_t r, std::int64_t) {
      const double value = constants[std::size_t(r)];
      return std::fabs(value) > reference::largest_finite(data.x.dtype()) ? 2 : value;
    });
    for (const double eps : {0.0, 1e-12, 1e-5, 1.0}) {
      data.eps = eps;
      kernels.forward(data, [&](const ForwardResult& result) {
        for (std::int64_t i = 0; i < data.rows * cols; ++i) {
          ASSERT_EQ(result.mean[i / cols], data.get_x(i / cols, 0)) << i;
          ASSERT_EQ(result.y[i], data.bias[i % cols]) << i;
        }
      });
    }
    data.eps = 1e-5;
    kernels.backward(data, [&](const BackwardResult& result) {
      for (std::int64_t c = 0; c < data.cols; ++c) ASSERT_EQ(result.dweight[c], 0) << c;
    });
  }
}

// One that is not constant only by a NaN, or that has no real root, is NaN.
TEST_P(Special, ConstantRowsThatAreNan) {
  for (const std::int64_t cols : {std::int64_t{777}, kNarrowCols}) {
    LayerData data(5, cols, type, type);
    fill_rows(data, [](std::int64_t, std::int64_t) { return 1.5; });
    for (const double eps : {-1.0, 0.0, 1e-5}) {
      data.eps = eps;
      data.set_x(1, 0, kNan);
      data.set_x(3, cols - 1, kNan);
      for (const Kernel& k : only(forward_kernels(), type, type)) {
        for (const Config& config : configs_for(k.variant, data.problem(k.op, {}), Effort::few)) {
          SCOPED_TRACE(to_string(config));
          const ForwardResult result = run_forward(data, {}, config, 0);
          for (std::int64_t i = 0; i < data.rows * cols; ++i) {
            const bool nan = eps < 0 || i / cols == 1 || i / cols == 3;
            ASSERT_EQ(std::isnan(result.rstd[i / cols]), nan) << i << ", eps " << eps;
            ASSERT_EQ(std::isnan(result.y[i]), nan) << i << ", eps " << eps;
          }
        }
      }
    }
  }
}

// Without eps the rstd of a constant row is Inf: its dX is 0, and it adds nothing to dW.
TEST_P(Special, ConstantRowsWithoutEpsHaveNoGradient) {
  for (const std::int64_t cols : {std::int64_t{777}, kNarrowCols}) {
    LayerData data(6, cols, type, type);
    fill_rows(data, [](std::int64_t r, std::int64_t) { return double(r) - 2.5; });
    data.eps = 0;
    data.save_statistics();
    ASSERT_EQ(data.rstd[0], kInfinity);
    for (const Kernel& k : only(backward_kernels(), type, type)) {
      for (const Config& config :
           configs_for(k.variant, data.problem(k.op, {}, kAllGrads), Effort::few)) {
        SCOPED_TRACE(to_string(config));
        const BackwardResult result = run_backward(k.op, data, {}, kAllGrads, config, 0);
        for (std::int64_t i = 0; i < data.rows * cols; ++i) {
          ASSERT_EQ(result.dx[i], 0) << i;
          ASSERT_TRUE(result.dweight[i % cols] == 0 && result.dbias[i % cols] != 0) << i;
        }
      }
    }
  }
}

TEST_P(Special, SingleColumn) {
  LayerData data(70, 1, type, type);
  data.set_x(3, 0, 0);
  kernels.forward(data, [&](const ForwardResult& result) {
    for (std::int64_t r = 0; r < data.rows; ++r) ASSERT_EQ(result.y[r], data.bias[0]) << r;
  });
  kernels.backward(data, [&](const BackwardResult& result) {
    for (std::int64_t r = 0; r < data.rows; ++r) ASSERT_EQ(result.dx[r], 0) << r;
    ASSERT_EQ(result.dweight[0], 0);
  });
}

TEST_P(Special, WeightWithZeros) {
  LayerData data(7, 130, type, type);
  for (std::int64_t c = 0; c < data.cols; c += 3) data.weight.set(c, 0);
  kernels.both(data);
  for (std::int64_t c = 0; c < data.cols; ++c) data.weight.set(c, 0);
  kernels.both(data);
}

// Without a real root everything is NaN, as ATen answers; eps = Inf makes rstd 0, and y the bias.
TEST_P(Special, Eps) {
  for (const std::int64_t cols : {std::int64_t{200}, kNarrowCols}) {
    for (const double eps : {0.0, 1e-30, 1.0, 1e10, kInfinity, -1.0, kNan}) {
      LayerData data(5, cols, type, type);
      data.eps = eps;
      kernels.backward(data);
      kernels.forward(data, [&](const ForwardResult& result) {
        ASSERT_EQ(std::isnan(result.rstd[0]) && std::isnan(result.y[0]), !(eps >= 0)) << eps;
      });
    }
  }
}

// Values near the smallest numbers: squares vanish, the rows must not turn to NaN.
TEST_P(Special, TinyValues) {
  const double scale = type == DType::f16 ? 1e-6 : type == DType::f64 ? 1e-310 : 1e-40;
  for (const std::int64_t cols : {std::int64_t{1000}, kNarrowCols}) {
    LayerData data(4, cols, type, type);
    fill_rows(data, normal(0, scale));
    kernels.both(data);
    if (!wide_exponent()) continue;
    // With eps = 0 the variance of such rows matters; f32 cannot hold it (1e-60), its root it can.
    LayerData no_eps(4, cols, type, type);
    fill_rows(no_eps, normal(0, type == DType::f64 ? 1e-150 : 1e-30));
    no_eps.eps = 0;
    kernels.both(no_eps);
  }
}

TEST_P(Special, TinyGradients) {
  LayerData data(4, 1000, type, type);
  for (std::int64_t r = 0; r < data.rows; ++r) {
    for (std::int64_t c = 0; c < data.cols; ++c) {
      data.set_dy(r, c,
                  (type == DType::f16   ? 1e-7
                   : type == DType::f64 ? 1e-309
                                        : 1e-39) *
                      double(c % 11 - 5));
    }
  }
  kernels.backward(data);
}

// The variance overflows the accumulate type: rstd = 0, y = bias, x̂ = 0, dX = 0; the sum of the row
// may overflow too, and the difference of two of its elements. Other rows are untouched.
TEST_P(Special, VarianceOverflow) {
  if (!wide_exponent()) {  // f16 ends at 65504, its variances are representable
    LayerData data(2, 500, type, type);
    fill_rows(data, [](std::int64_t r, std::int64_t c) { return c % 2 == r ? 65504 : -65504; });
    kernels.both(data);
    return;
  }
  const double largest = reference::largest_finite(type);
  const double huge = type == DType::f64 ? 1e300 : 1e30;
  for (const std::int64_t cols : {std::int64_t{600}, kNarrowCols}) {
    LayerData data(8, cols, type, type);
    const auto ordinary = normal(0, 1);
    fill_rows(data, [&](std::int64_t r, std::int64_t c) {
      switch (r) {
        case 1: return huge * double(c + 1);
        case 2: return c % 2 == 0 ? largest : -largest;
        case 3: return c % 3 == 0 ? largest : huge;
        case 4: return c == cols - 1 ? largest : 0.0;
        case 6: return c == 0 ? -largest / 2 : largest;
        default: return ordinary(r, c);
      }
    });
    const auto overflows = [](std::int64_t r) { return (r >= 1 && r <= 4) || r == 6; };
    kernels.forward(data, [&](const ForwardResult& result) {
      for (std::int64_t r = 0; r < data.rows; ++r) {
        ASSERT_EQ(result.rstd[r] == 0, overflows(r)) << r;
        if (!overflows(r)) continue;
        ASSERT_FALSE(std::isnan(result.mean[r])) << r;
        for (std::int64_t c = 0; c < data.cols; ++c) {
          ASSERT_EQ(result.y[r * data.cols + c], data.bias[c]) << r << ", " << c;
        }
      }
    });
    kernels.backward(data, [&](const BackwardResult& result) {
      for (std::int64_t r = 0; r < data.rows; ++r) {
        if (!overflows(r)) continue;
        for (std::int64_t c = 0; c < data.cols; ++c) {
          ASSERT_EQ(result.dx[r * data.cols + c], 0) << r << ", " << c;
        }
      }
    });
  }
}

// Below that border the row is an ordinary one, even where its sum of squares overflows.
TEST_P(Special, LargeVarianceThatFits) {
  const double scale = type == DType::f64 ? 9e153 : type == DType::f16 ? 1e4 : 9e18;
  for (const std::int64_t cols : {std::int64_t{600}, kNarrowCols}) {
    for (const double deviation : {scale, scale / 100}) {
      LayerData data(3, cols, type, type);
      fill_rows(data, normal(0, deviation));
      kernels.backward(data);
      kernels.forward(data, [&](const ForwardResult& result) {
        for (std::int64_t r = 0; r < data.rows; ++r) ASSERT_GT(result.rstd[r], 0) << r;
      });
    }
  }
}

// Inf or NaN in x: that row is NaN, and every other row has the bits it has without.
TEST_P(Special, NonFiniteRowsStayAlone) {
  for (const std::int64_t cols : {std::int64_t{200}, kNarrowCols}) {
    const LayerData clean(9, cols, type, type);
    LayerData data(9, cols, type, type);
    data.set_x(1, 0, kNan);
    data.set_x(3, cols - 1, kInfinity);
    data.set_x(4, cols / 2, -kInfinity);
    data.set_x(6, 2, kInfinity);
    data.set_x(6, cols - 2, -kInfinity);
    const auto spoilt = [](std::int64_t r) { return r == 1 || r == 3 || r == 4 || r == 6; };
    for (const Kernel& k : only(forward_kernels(), type, type)) {
      const auto configs = configs_for(k.variant, data.problem(k.op, {}), Effort::few);
      const auto with = check_forward(data, {}, configs);
      const auto without = check_forward(clean, {}, configs);
      for (std::size_t i = 0; i < configs.size(); ++i) {
        SCOPED_TRACE(to_string(configs[i]));
        for (std::int64_t r = 0; r < data.rows; ++r) {
          ASSERT_EQ(std::isnan(with[i].rstd[r]), spoilt(r)) << r;
          for (std::int64_t j = r * data.cols; j < (r + 1) * data.cols; ++j) {
            if (spoilt(r)) {
              ASSERT_TRUE(std::isnan(with[i].y[j])) << j;
            } else {
              ASSERT_EQ(with[i].y[j], without[i].y[j]) << j;
            }
          }
        }
      }
    }
    // dW gathers from all rows, so a NaN x̂ reaches it; dB does not depend on x.
    kernels.backward(data, [&](const BackwardResult& result) {
      for (std::int64_t c = 0; c < data.cols; ++c) {
        ASSERT_TRUE(std::isnan(result.dweight[c])) << c;
        ASSERT_TRUE(std::isfinite(result.dbias[c])) << c;
        ASSERT_TRUE(std::isfinite(result.dx[5 * data.cols + c])) << c;
        ASSERT_FALSE(std::isfinite(result.dx[3 * data.cols + c])) << c;
      }
    });
  }
}

// Inf or NaN in dy: dX of that row, dW and dB of that column.
TEST_P(Special, NonFiniteGradientsStayAlone) {
  for (const std::int64_t cols : {std::int64_t{200}, kNarrowCols}) {
    LayerData data(9, cols, type, type);
    data.set_dy(2, 4, kNan);
    data.set_dy(5, cols - 1, kInfinity);
    data.set_dy(8, 0, -kInfinity);
    kernels.backward(data, [&](const BackwardResult& result) {
      for (std::int64_t c = 0; c < data.cols; ++c) {
        const bool spoilt = c == 4 || c == cols - 1 || c == 0;
        ASSERT_EQ(std::isfinite(result.dweight[c]), !spoilt) << c;
        ASSERT_EQ(std::isfinite(result.dbias[c]), !spoilt) << c;
        for (std::int64_t r = 0; r < data.rows; ++r) {
          ASSERT_EQ(std::isfinite(result.dx[r * data.cols + c]), r != 2 && r != 5 && r != 8)
              << r << ", " << c;
        }
      }
    });
  }
}

// Inf or NaN in weight or bias: that column of y, all of dX, nothing of dW and dB.
TEST_P(Special, NonFiniteParametersStayAlone) {
  for (const std::int64_t cols : {std::int64_t{200}, kNarrowCols}) {
    LayerData data(5, cols, type, type);
    data.weight.set(2, kNan);
    data.weight.set(4, kInfinity);
    data.bias.set(cols - 1, -kInfinity);
    kernels.forward(data, [&](const ForwardResult& result) {
      for (std::int64_t i = 0; i < data.rows * data.cols; ++i) {
        const std::int64_t c = i % data.cols;
        ASSERT_EQ(std::isfinite(result.y[i]), c != 2 && c != 4 && c != cols - 1) << i;
      }
    });
    kernels.backward(data, [&](const BackwardResult& result) {
      for (std::int64_t c = 0; c < data.cols; ++c) {
        ASSERT_TRUE(std::isfinite(result.dweight[c])) << c;
        ASSERT_TRUE(std::isfinite(result.dbias[c])) << c;
        ASSERT_FALSE(std::isfinite(result.dx[c])) << c;
      }
    });
  }
}

// f32 weights with 16-bit inputs hold what the 16-bit type does not.
TEST(SpecialMixed, WeightsBeyondTheInputsRange) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const std::int64_t cols : {std::int64_t{300}, kNarrowCols}) {
      LayerData data(4, cols, type, DType::f32);
      for (std::int64_t c = 0; c < data.cols; ++c) data.weight.set(c, c % 2 == 0 ? 1e6 : 1e-9);
      for (std::int64_t c = 1; c < data.cols; c += 2) data.bias.set(c, 0x1p-20);
      Kernels(type, DType::f32).both(data);
    }
  }
}

}  // namespace
}  // namespace hipnorm::testing
