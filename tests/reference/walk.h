// One walk over the rows of a problem: the truth and how far a result may lie from it, row by row,
// handed to whoever wants to know. Shared by judge.cpp (compares) and bounds.cpp (writes down).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/reference/reference.h"
#include "tests/reference/rows.h"
#include "tests/reference/tolerance.h"

namespace hipnorm::reference {

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

inline int threads_for(std::int64_t rows, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(rows, 1)));
}

// For each row in [first, end): sink.row(r, statistics, mean's bound, rstd's bound), then
// sink.output(r, want, bound) with arrays of [cols]. Bounds are without the output's rounding.
template <typename Real, typename Sink>
void walk_forward(const ForwardInputs& in, std::int64_t first, std::int64_t end, Sink& sink) {
  const std::int64_t n = in.cols;
  const std::size_t cols = static_cast<std::size_t>(n);
  const Tolerance& table = tolerance(in.x.dtype);
  const DType accumulate = accumulate_type(in.x.dtype);
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  const std::vector<Real> bias = load_vector<Real>(in.bias, n, 0);
  std::vector<Real> x(cols), want(cols);
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
    sink.row(r, row, mean_bound(table, magnitudes), rstd_bound(table, magnitudes));
    sink.output(r, want, bounds);
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

// For each row in [first, end): sink.output(r, want, bound) of dX; the column sums go into
// `columns`.
template <typename Real, typename Sink>
void walk_backward(const BackwardInputs& in, std::int64_t first, std::int64_t end,
                   Columns<Real>& columns, Sink& sink) {
  const std::int64_t n = in.cols;
  const std::size_t cols = static_cast<std::size_t>(n);
  const Tolerance& table = tolerance(in.x.dtype);
  const DType accumulate = accumulate_type(in.x.dtype);
  const bool given = in.mean.data != nullptr;
  const std::vector<Real> weight = load_vector<Real>(in.weight, n, 1);
  std::vector<Real> x(cols), dy(cols), normalized(cols), gradient(cols), want(cols);
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
    sink.output(r, want, bounds);
  }
}

// How far dW and dB may lie from the truth, without the output's rounding.
template <typename Real>
double dweight_bound(const BackwardInputs& in, const Columns<Real>& columns, std::size_t c) {
  return column_bound(tolerance(in.x.dtype), in.rows, columns.dweight_abs[c], columns.error[c]);
}
template <typename Real>
double dbias_bound(const BackwardInputs& in, const Columns<Real>& columns, std::size_t c) {
  return column_bound(tolerance(in.x.dtype), in.rows, columns.dbias_abs[c], 0);
}

}  // namespace hipnorm::reference
