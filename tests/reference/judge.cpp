#include "tests/reference/judge.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "tests/reference/rows.h"

namespace hipnorm::reference {
namespace {

// What a NaN in the truth asks of the result.
enum class NanRule { must_be_nan, must_not_be_finite };

// How `got` is judged against `want`. `bound` is without the output's rounding.
class Comparison {
 public:
  Comparison(DType output, double ulps, NanRule rule)
      : spacing_(output), overflow_(overflow_threshold(output)), ulps_(ulps), rule_(rule) {}

  template <typename Real>
  void operator()(Verdict& verdict, std::int64_t row, std::int64_t col, Real want, Real got,
                  double bound) const {
    const double total = bound + ulps_ * spacing_(static_cast<double>(want));
    const double error = static_cast<double>(std::fabs(got - want));
    // The common case ends here. False where anything is NaN.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (error <= verdict.worst * total && total < kInfinity) return;
    const double ratio = exception(static_cast<double>(want), static_cast<double>(got), total)
                             .value_or(error / total);
    if (ratio <= verdict.worst && verdict.row >= 0) return;
    verdict = {ratio, row, col, static_cast<double>(got), static_cast<double>(want), total};
  }

 private:
  // The verdict where the quotient says nothing.
  std::optional<double> exception(double want, double got, double total) const {
    constexpr double kWrong = std::numeric_limits<double>::infinity();
    if (std::isnan(want)) {
      return (rule_ == NanRule::must_be_nan ? std::isnan(got) : !std::isfinite(got)) ? 0 : kWrong;
    }
    if (std::isinf(want)) return std::isfinite(got) ? kWrong : 0;
    if (std::isinf(got)) {
      const bool right = std::fabs(want) + total >= overflow_ && (want > 0) == (got > 0);
      return right ? 0 : kWrong;
    }
    if (std::isnan(got) || !(total > 0)) return kWrong;
    return std::nullopt;
  }

  Spacing spacing_;
  double overflow_;
  double ulps_;
  NanRule rule_;
};

// Keeps the worse; of equals the one that came first.
void merge(Verdict& into, const Verdict& other) {
  if (other.worst > into.worst || into.row < 0) into = other;
}

// Calls work(thread, first row, end row) on `threads` threads, the rows in contiguous shares.
template <typename F>
void share_rows(std::int64_t rows, int threads, F work) {
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) {
    helpers.emplace_back(work, t, rows * t / threads, rows * (t + 1) / threads);
  }
  work(0, 0, rows / threads);
  for (std::thread& helper : helpers) helper.join();
}

int threads_for(std::int64_t rows, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(rows, 1)));
}

template <typename Real>
void judge_forward_rows(const ForwardInputs& in, std::span<const ForwardOutputs> results,
                        std::int64_t first, std::int64_t end,
                        std::vector<ForwardVerdict>& verdicts) {
  const std::int64_t n = in.cols;
  const std::size_t cols = static_cast<std::size_t>(n);
  const Tolerance& table = tolerance(in.x.dtype);
  const DType accumulate = accumulate_type(in.x.dtype);
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  const std::vector<Real> bias = load_vector<Real>(in.bias, n, 0);
  std::vector<Real> x(cols), want(cols), got(cols);
  std::vector<double> bounds(cols);
  for (std::int64_t r = first; r < end; ++r) {
    load_row(in.x.dtype, in.x.data, r * in.x.stride, n, x.data());
    const Statistics<Real> row = statistics<Real>(x.data(), n, in.eps, accumulate);
    const RowMagnitudes magnitudes = row.magnitudes(n);
    const OutputBound bound = output_bound(table, magnitudes);
    for (std::size_t c = 0; c < cols; ++c) {
      const Real normalized = row.normalized(x[c]);
      want[c] = normalized * weight[c] + bias[c];
      bounds[c] =
          bound(static_cast<double>(std::fabs(normalized)),
                static_cast<double>(std::fabs(weight[c])), static_cast<double>(std::fabs(bias[c])));
    }
    const auto got_statistic = [r](const Vector& statistic) {
      return static_cast<Real>(load(statistic.dtype, statistic.data, r));
    };
    for (std::size_t k = 0; k < results.size(); ++k) {
      const ForwardOutputs& result = results[k];
      ForwardVerdict& verdict = verdicts[k];
      if (result.rstd.data != nullptr) {
        Comparison(result.rstd.dtype, 0.5, NanRule::must_be_nan)(verdict.rstd, r, 0, row.rstd,
                                                                 got_statistic(result.rstd),
                                                                 rstd_bound(table, magnitudes));
      }
      if (result.mean.data != nullptr && !row.overflows) {
        Comparison(result.mean.dtype, 0.5, NanRule::must_not_be_finite)(
            verdict.mean, r, 0, row.mean(), got_statistic(result.mean),
            mean_bound(table, magnitudes));
      }
      if (result.y.data == nullptr) continue;
      load_row(result.y.dtype, result.y.data, r * result.y.stride, n, got.data());
      const Comparison compare(result.y.dtype, table.output_ulps, NanRule::must_be_nan);
      for (std::size_t c = 0; c < cols; ++c) {
        compare(verdict.y, r, static_cast<std::int64_t>(c), want[c], got[c], bounds[c]);
      }
    }
  }
}

// Sums over rows; `error` is Σ|dy|·|error of x̂|.
template <typename Real>
struct Columns {
  explicit Columns(std::size_t n) : dweight(n), dbias(n), dweight_abs(n), dbias_abs(n), error(n) {}
  void add(const Columns& other) {
    for (auto member : {&Columns::dweight, &Columns::dbias}) {
      for (std::size_t c = 0; c < dbias.size(); ++c) (this->*member)[c] += (other.*member)[c];
    }
    for (auto member : {&Columns::dweight_abs, &Columns::dbias_abs, &Columns::error}) {
      for (std::size_t c = 0; c < dbias.size(); ++c) (this->*member)[c] += (other.*member)[c];
    }
  }
  std::vector<Real> dweight, dbias;
  std::vector<double> dweight_abs, dbias_abs, error;
};

template <typename Real>
void judge_backward_rows(const BackwardInputs& in, std::span<const BackwardOutputs> results,
                         std::int64_t first, std::int64_t end, Columns<Real>& columns,
                         std::vector<BackwardVerdict>& verdicts) {
  const std::int64_t n = in.cols;
  const std::size_t cols = static_cast<std::size_t>(n);
  const Tolerance& table = tolerance(in.x.dtype);
  const DType accumulate = accumulate_type(in.x.dtype);
  const bool given = in.mean.data != nullptr;
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  std::vector<Real> x(cols), dy(cols), normalized(cols), gradient(cols), want(cols), got(cols);
  std::vector<double> bounds(cols);
  for (std::int64_t r = first; r < end; ++r) {
    load_row(in.x.dtype, in.x.data, r * in.x.stride, n, x.data());
    load_row(in.dy.dtype, in.dy.data, r * in.dy.stride, n, dy.data());
    const auto row = backward_row<Real>(
        given ? saved_statistics<Real>(in, r) : statistics<Real>(x.data(), n, in.eps, accumulate),
        x.data(), dy.data(), weight.data(), n, normalized.data(), gradient.data());
    const RowMagnitudes magnitudes = row.statistics.magnitudes(n);
    const NormalizedBound normalized_bound = normalized_from_saved(table, magnitudes, given);
    const InputGradientBound bound = input_gradient_bound(
        table, magnitudes, normalized_bound,
        {static_cast<double>(row.c1), static_cast<double>(row.c2),
         static_cast<double>(row.c1_magnitude), static_cast<double>(row.c2_magnitude)},
        given);
    for (std::size_t c = 0; c < cols; ++c) {
      const Real product = dy[c] * normalized[c];
      const double normalized_abs = static_cast<double>(std::fabs(normalized[c]));
      const double dy_abs = static_cast<double>(std::fabs(dy[c]));
      columns.dweight[c] += product;
      columns.dbias[c] += dy[c];
      columns.dweight_abs[c] += static_cast<double>(std::fabs(product));
      columns.dbias_abs[c] += dy_abs;
      columns.error[c] +=
          dy_abs * (normalized_bound.constant + normalized_bound.relative * normalized_abs);
      want[c] = row.dx(gradient[c], normalized[c]);
      bounds[c] = bound(normalized_abs, static_cast<double>(std::fabs(gradient[c])));
    }
    for (std::size_t k = 0; k < results.size(); ++k) {
      const Matrix& dx = results[k].dx;
      if (dx.data == nullptr) continue;
      load_row(dx.dtype, dx.data, r * dx.stride, n, got.data());
      const Comparison compare(dx.dtype, table.output_ulps, NanRule::must_not_be_finite);
      for (std::size_t c = 0; c < cols; ++c) {
        compare(verdicts[k].dx, r, static_cast<std::int64_t>(c), want[c], got[c], bounds[c]);
      }
    }
  }
}

template <typename Real>
void judge_columns(const BackwardInputs& in, const Columns<Real>& columns,
                   const BackwardOutputs& result, BackwardVerdict& verdict) {
  const Tolerance& table = tolerance(in.x.dtype);
  const auto compare = [&](const Vector& got, Verdict& into, const std::vector<Real>& want,
                           auto bound) {
    if (got.data == nullptr) return;
    const Comparison comparison(got.dtype, table.weight_grad_ulps, NanRule::must_not_be_finite);
    for (std::size_t c = 0; c < want.size(); ++c) {
      const auto index = static_cast<std::int64_t>(c);
      comparison(into, 0, index, want[c], static_cast<Real>(load(got.dtype, got.data, index)),
                 bound(c));
    }
  };
  compare(result.dweight, verdict.dweight, columns.dweight, [&](std::size_t c) {
    return column_bound(table, in.rows, columns.dweight_abs[c], columns.error[c]);
  });
  compare(result.dbias, verdict.dbias, columns.dbias,
          [&](std::size_t c) { return column_bound(table, in.rows, columns.dbias_abs[c], 0); });
}

template <typename Real>
std::vector<ForwardVerdict> judge_forward_in(const ForwardInputs& in,
                                             std::span<const ForwardOutputs> results, int threads) {
  threads = threads_for(in.rows, threads);
  std::vector<std::vector<ForwardVerdict>> shares(static_cast<std::size_t>(threads),
                                                  std::vector<ForwardVerdict>(results.size()));
  share_rows(in.rows, threads, [&](int t, std::int64_t first, std::int64_t end) {
    judge_forward_rows<Real>(in, results, first, end, shares[static_cast<std::size_t>(t)]);
  });
  std::vector<ForwardVerdict> verdicts(results.size());
  for (const auto& share : shares) {
    for (std::size_t k = 0; k < results.size(); ++k) {
      merge(verdicts[k].y, share[k].y);
      merge(verdicts[k].mean, share[k].mean);
      merge(verdicts[k].rstd, share[k].rstd);
    }
  }
  return verdicts;
}

template <typename Real>
std::vector<BackwardVerdict> judge_backward_in(const BackwardInputs& in,
                                               std::span<const BackwardOutputs> results,
                                               int threads) {
  threads = threads_for(in.rows, threads);
  const auto count = static_cast<std::size_t>(threads);
  std::vector<std::vector<BackwardVerdict>> shares(count,
                                                   std::vector<BackwardVerdict>(results.size()));
  std::vector<Columns<Real>> columns(count, Columns<Real>(static_cast<std::size_t>(in.cols)));
  share_rows(in.rows, threads, [&](int t, std::int64_t first, std::int64_t end) {
    const auto share = static_cast<std::size_t>(t);
    judge_backward_rows<Real>(in, results, first, end, columns[share], shares[share]);
  });
  for (std::size_t t = 1; t < count; ++t) columns[0].add(columns[t]);
  std::vector<BackwardVerdict> verdicts(results.size());
  for (std::size_t k = 0; k < results.size(); ++k) {
    for (const auto& share : shares) merge(verdicts[k].dx, share[k].dx);
    judge_columns<Real>(in, columns[0], results[k], verdicts[k]);
  }
  return verdicts;
}

// "y: 1.7 × the bound …; " for the outputs that are wrong.
std::string describe_wrong(std::initializer_list<std::pair<const char*, const Verdict*>> outputs) {
  std::string text;
  for (const auto& [name, verdict] : outputs) {
    if (verdict->ok()) continue;
    if (!text.empty()) text += "; ";
    text += std::string(name) + ": " + verdict->describe();
  }
  return text.empty() ? "right" : text;
}

}  // namespace

std::string Verdict::describe() const {
  char text[256];
  std::snprintf(text, sizeof text,
                "%.3g × the bound at (%lld, %lld): got %.9g, want %.9g, bound %.3g", worst,
                static_cast<long long>(row), static_cast<long long>(col), got, want, bound);
  return text;
}

double ForwardVerdict::worst() const { return std::max({y.worst, mean.worst, rstd.worst}); }
std::string ForwardVerdict::describe() const {
  return describe_wrong({{"y", &y}, {"mean", &mean}, {"rstd", &rstd}});
}
double BackwardVerdict::worst() const { return std::max({dx.worst, dweight.worst, dbias.worst}); }
std::string BackwardVerdict::describe() const {
  return describe_wrong({{"dX", &dx}, {"dW", &dweight}, {"dB", &dbias}});
}

std::vector<ForwardVerdict> judge_forward(const ForwardInputs& in,
                                          std::span<const ForwardOutputs> results, int threads) {
  return in.x.dtype == DType::f64 ? judge_forward_in<long double>(in, results, threads)
                                  : judge_forward_in<double>(in, results, threads);
}
ForwardVerdict judge_forward(const ForwardInputs& in, const ForwardOutputs& result, int threads) {
  return judge_forward(in, std::span(&result, 1), threads).front();
}
std::vector<BackwardVerdict> judge_backward(const BackwardInputs& in,
                                            std::span<const BackwardOutputs> results, int threads) {
  return in.x.dtype == DType::f64 ? judge_backward_in<long double>(in, results, threads)
                                  : judge_backward_in<double>(in, results, threads);
}
BackwardVerdict judge_backward(const BackwardInputs& in, const BackwardOutputs& result,
                               int threads) {
  return judge_backward(in, std::span(&result, 1), threads).front();
}

}  // namespace hipnorm::reference
