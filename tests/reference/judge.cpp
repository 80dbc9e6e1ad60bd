#include "tests/reference/judge.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "tests/reference/walk.h"

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

// Compares every row of several results.
template <typename Real>
class ForwardJudge {
 public:
  ForwardJudge(const ForwardInputs& in, std::span<const ForwardOutputs> results,
               std::vector<ForwardVerdict>& verdicts)
      : table_(tolerance(in.x.dtype)),
        results_(results),
        verdicts_(verdicts),
        got_(static_cast<std::size_t>(in.cols)) {}

  void row(std::int64_t r, const Statistics<Real>& want, double mean_bound, double rstd_bound) {
    const auto got = [r](const Vector& statistic) {
      return static_cast<Real>(load(statistic.dtype, statistic.data, r));
    };
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const auto& [y, mean, rstd] = results_[k];
      if (rstd.data != nullptr) {
        Comparison(rstd.dtype, 0.5, NanRule::must_be_nan)(verdicts_[k].rstd, r, 0, want.rstd,
                                                          got(rstd), rstd_bound);
      }
      if (mean.data != nullptr && !want.overflows) {
        Comparison(mean.dtype, 0.5, NanRule::must_not_be_finite)(
            verdicts_[k].mean, r, 0, want.mean(), got(mean), mean_bound);
      }
    }
  }
  void output(std::int64_t r, const std::vector<Real>& want, const std::vector<double>& bounds) {
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const Matrix& y = results_[k].y;
      if (y.data == nullptr) continue;
      load_row(y.dtype, y.data, r * y.stride, static_cast<std::int64_t>(want.size()), got_.data());
      const Comparison compare(y.dtype, table_.output_ulps, NanRule::must_be_nan);
      for (std::size_t c = 0; c < want.size(); ++c) {
        compare(verdicts_[k].y, r, static_cast<std::int64_t>(c), want[c], got_[c], bounds[c]);
      }
    }
  }

 private:
  const Tolerance& table_;
  std::span<const ForwardOutputs> results_;
  std::vector<ForwardVerdict>& verdicts_;
  std::vector<Real> got_;
};

template <typename Real>
class BackwardJudge {
 public:
  BackwardJudge(const BackwardInputs& in, std::span<const BackwardOutputs> results,
                std::vector<BackwardVerdict>& verdicts)
      : table_(tolerance(in.x.dtype)),
        results_(results),
        verdicts_(verdicts),
        got_(static_cast<std::size_t>(in.cols)) {}

  void output(std::int64_t r, const std::vector<Real>& want, const std::vector<double>& bounds) {
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const Matrix& dx = results_[k].dx;
      if (dx.data == nullptr) continue;
      load_row(dx.dtype, dx.data, r * dx.stride, static_cast<std::int64_t>(want.size()),
               got_.data());
      const Comparison compare(dx.dtype, table_.output_ulps, NanRule::must_not_be_finite);
      for (std::size_t c = 0; c < want.size(); ++c) {
        compare(verdicts_[k].dx, r, static_cast<std::int64_t>(c), want[c], got_[c], bounds[c]);
      }
    }
  }

 private:
  const Tolerance& table_;
  std::span<const BackwardOutputs> results_;
  std::vector<BackwardVerdict>& verdicts_;
  std::vector<Real> got_;
};

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
  compare(result.dweight, verdict.dweight, columns.dweight,
          [&](std::size_t c) { return dweight_bound(in, columns, c); });
  compare(result.dbias, verdict.dbias, columns.dbias,
          [&](std::size_t c) { return dbias_bound(in, columns, c); });
}

template <typename Real>
std::vector<ForwardVerdict> judge_forward_in(const ForwardInputs& in,
                                             std::span<const ForwardOutputs> results, int threads) {
  threads = threads_for(in.rows, threads);
  std::vector<std::vector<ForwardVerdict>> shares(static_cast<std::size_t>(threads),
                                                  std::vector<ForwardVerdict>(results.size()));
  share_rows(in.rows, threads, [&](int t, std::int64_t first, std::int64_t end) {
    ForwardJudge<Real> judge(in, results, shares[static_cast<std::size_t>(t)]);
    walk_forward<Real>(in, first, end, judge);
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
    BackwardJudge<Real> judge(in, results, shares[share]);
    walk_backward<Real>(in, first, end, columns[share], judge);
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
