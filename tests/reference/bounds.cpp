#include "tests/reference/bounds.h"

#include <limits>

#include "tests/reference/walk.h"

namespace hipnorm::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Bounds empty(DType dtype, std::int64_t count, Bounds::Nan nan) {
  Bounds bounds{.dtype = dtype, .nan = nan, .low = {}, .high = {}};
  bounds.low.resize(static_cast<std::size_t>(count * size_of(dtype)));
  bounds.high.resize(bounds.low.size());
  return bounds;
}

// The smallest number of the format that is ≥ value, or the largest that is ≤ value.
double round_up(DType dtype, double value) {
  const double rounded = round_to(dtype, value);
  if (rounded >= value || !std::isfinite(value)) return rounded;
  // Below a power of two numbers lie twice as close: half a step may lead to the next already.
  const double half = round_to(dtype, rounded + ulp(dtype, rounded) / 2);
  return half > rounded ? half : round_to(dtype, rounded + ulp(dtype, rounded));
}
double round_down(DType dtype, double value) { return -round_up(dtype, -value); }

class Writer {
 public:
  Writer(Bounds& bounds, double ulps)
      : bounds_(bounds),
        spacing_(bounds.dtype),
        overflow_(overflow_threshold(bounds.dtype)),
        ulps_(ulps) {}

  void operator()(std::int64_t i, double want, double bound) const {
    const double total = bound + ulps_ * spacing_(want);
    if (std::isnan(want)) return set(i, want, want);
    // Infinite truth: anything that is not finite, on either side.
    if (std::isinf(want)) return set(i, kInfinity, -kInfinity);
    if (!std::isfinite(total)) return set(i, -kInfinity, kInfinity);
    const double low = want - total, high = want + total;
    set(i, low <= -overflow_ ? -kInfinity : round_up(bounds_.dtype, low),
        high >= overflow_ ? kInfinity : round_down(bounds_.dtype, high));
  }
  void anything(std::int64_t i) const { set(i, -kInfinity, kInfinity); }

 private:
  void set(std::int64_t i, double low, double high) const {
    store(bounds_.dtype, bounds_.low.data(), i, low);
    store(bounds_.dtype, bounds_.high.data(), i, high);
  }
  Bounds& bounds_;
  Spacing spacing_;
  double overflow_;
  double ulps_;
};

struct ForwardWriter {
  std::int64_t cols;
  Writer y, mean, rstd;
  void row(std::int64_t r, const Statistics<double>& want, double mean_bound, double rstd_bound) {
    rstd(r, want.rstd, rstd_bound);
    if (want.overflows) {
      mean.anything(r);  // nothing depends on it
    } else {
      mean(r, want.mean(), mean_bound);
    }
  }
  void output(std::int64_t r, const std::vector<double>& want, const std::vector<double>& bounds) {
    for (std::size_t c = 0; c < want.size(); ++c) {
      y(r * cols + static_cast<std::int64_t>(c), want[c], bounds[c]);
    }
  }
};

struct BackwardWriter {
  std::int64_t cols;
  Writer dx;
  void output(std::int64_t r, const std::vector<double>& want, const std::vector<double>& bounds) {
    for (std::size_t c = 0; c < want.size(); ++c) {
      dx(r * cols + static_cast<std::int64_t>(c), want[c], bounds[c]);
    }
  }
};

}  // namespace

ForwardBounds forward_bounds(const ForwardInputs& in, int threads) {
  const Tolerance& table = tolerance(in.x.dtype);
  const DType accumulate = accumulate_type(in.x.dtype);
  using Nan = Bounds::Nan;
  ForwardBounds bounds{.y = empty(in.x.dtype, in.rows * in.cols, Nan::must_be_nan),
                       .mean = empty(accumulate, in.rows, Nan::must_not_be_finite),
                       .rstd = empty(accumulate, in.rows, Nan::must_be_nan)};
  share_rows(in.rows, threads_for(in.rows, threads),
             [&](int, std::int64_t first, std::int64_t end) {
               ForwardWriter writer{in.cols, Writer(bounds.y, table.output_ulps),
                                    Writer(bounds.mean, 0.5), Writer(bounds.rstd, 0.5)};
               walk_forward<double>(in, first, end, writer);
             });
  return bounds;
}

BackwardBounds backward_bounds(const BackwardInputs& in, DType weight, int threads) {
  const Tolerance& table = tolerance(in.x.dtype);
  using Nan = Bounds::Nan;
  BackwardBounds bounds{.dx = empty(in.x.dtype, in.rows * in.cols, Nan::must_not_be_finite),
                        .dweight = empty(weight, in.cols, Nan::must_not_be_finite),
                        .dbias = empty(weight, in.cols, Nan::must_not_be_finite)};
  threads = threads_for(in.rows, threads);
  std::vector<Columns<double>> columns(static_cast<std::size_t>(threads),
                                       Columns<double>(static_cast<std::size_t>(in.cols)));
  share_rows(in.rows, threads, [&](int t, std::int64_t first, std::int64_t end) {
    BackwardWriter writer{in.cols, Writer(bounds.dx, table.output_ulps)};
    walk_backward<double>(in, first, end, columns[static_cast<std::size_t>(t)], writer);
  });
  for (std::size_t t = 1; t < columns.size(); ++t) columns[0].add(columns[t]);
  const Writer dweight(bounds.dweight, table.weight_grad_ulps);
  const Writer dbias(bounds.dbias, table.weight_grad_ulps);
  for (std::int64_t c = 0; c < in.cols; ++c) {
    const auto at = static_cast<std::size_t>(c);
    dweight(c, columns[0].dweight[at], dweight_bound(in, columns[0], at));
    dbias(c, columns[0].dbias[at], dbias_bound(in, columns[0], at));
  }
  return bounds;
}

}  // namespace hipnorm::reference
