// One row of the reference, in the precision `Real`: shared by reference.cpp (all values) and
// judge.cpp (no values kept).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/reference/number_format.h"
#include "tests/reference/reference.h"
#include "tests/reference/tolerance.h"

namespace hipnorm::reference {

// Σ f(i), i in [0, n). Eight lanes: fast, and a lane's error is an eighth of one chain's.
template <typename Real, typename F>
Real sum(std::int64_t n, F f) {
  constexpr int kLanes = 8;
  Real lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += f(i + k);
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += f(i);
  Real total = 0;
  for (const Real lane : lanes) total += lane;
  return total;
}

// Elements [first, first + n) of an array, exactly. The switch is outside the loop.
template <typename Real>
void load_row(DType dtype, const void* data, std::int64_t first, std::int64_t n, Real* out) {
  const auto copy = [&](auto stored, auto convert) {
    const char* source = static_cast<const char*>(data) + first * std::int64_t(sizeof stored);
    for (std::int64_t i = 0; i < n; ++i) {
      std::memcpy(&stored, source + i * std::int64_t(sizeof stored), sizeof stored);
      out[i] = convert(stored);
    }
  };
  switch (dtype) {
    case DType::f16: return copy(std::uint16_t{}, [](std::uint16_t v) { return from_half(v); });
    case DType::bf16:
      return copy(std::uint16_t{}, [](std::uint16_t v) { return from_bfloat16(v); });
    case DType::f32: return copy(float{}, [](float v) { return v; });
    case DType::f64: return copy(double{}, [](double v) { return v; });
    case DType::none: return;
  }
}

// A weight or bias, or what stands for an absent one.
template <typename Real>
std::vector<Real> load_vector(const Vector& vector, std::int64_t n, Real absent) {
  std::vector<Real> out(static_cast<std::size_t>(n), absent);
  if (vector.data != nullptr) load_row(vector.dtype, vector.data, 0, n, out.data());
  return out;
}

template <typename Real>
struct Statistics {
  // The mean is first + offset. Kept apart: at a large mean their rounded sum would cost digits.
  Real first = 0;   // x₀
  Real offset = 0;  // Σ(x − x₀)/N
  Real rstd = 0;
  Real spread = 0;  // Σ|x − x₀|/N
  bool finite = true;
  bool overflows = false;  // the variance lies beyond the accumulate type: rstd = 0

  Real mean() const { return first + offset; }
  // x̂. A variance of 0 gives 0 also where eps = 0 makes rstd infinite.
  Real normalized(Real x) const {
    if (!finite) return std::numeric_limits<Real>::quiet_NaN();
    const Real centred = (x - first) - offset;
    return rstd == 0 || centred == 0 ? Real(0) : centred * rstd;
  }
  RowMagnitudes magnitudes(std::int64_t n) const {
    return {n, static_cast<double>(mean()), static_cast<double>(rstd), static_cast<double>(spread)};
  }
};

// `Real` has a wider range than x's dtype: neither sums nor squares overflow in it.
template <typename Real>
Statistics<Real> statistics(const Real* x, std::int64_t n, double eps, DType accumulate) {
  Statistics<Real> row;
  const Real count = static_cast<Real>(n);
  const Real first = n > 0 ? x[0] : Real(0);
  row.finite = n > 0 && std::isfinite(sum<Real>(n, [&](std::int64_t i) { return x[i] * 0; }));
  if (!row.finite) {
    row.first = row.rstd = std::numeric_limits<Real>::quiet_NaN();
    return row;
  }
  row.first = first;
  row.offset = sum<Real>(n, [&](std::int64_t i) { return x[i] - first; }) / count;
  row.spread = sum<Real>(n, [&](std::int64_t i) { return std::fabs(x[i] - first); }) / count;
  const Real variance = sum<Real>(n,
                                  [&](std::int64_t i) {
                                    const Real centred = (x[i] - first) - row.offset;
                                    return centred * centred;
                                  }) /
                        count;
  row.overflows = variance > static_cast<Real>(largest_finite(accumulate));
  row.rstd = row.overflows ? Real(0) : 1 / std::sqrt(variance + Real(eps));
  return row;
}

// What the backward of one row needs besides x and dy.
template <typename Real>
struct BackwardRow {
  Statistics<Real> statistics;
  Real c1 = 0;
  Real c2 = 0;
  Real c1_magnitude = 0;
  Real c2_magnitude = 0;
  Real dx(Real gradient, Real normalized) const {
    return statistics.rstd * (gradient - c1 - normalized * c2);
  }
};

// Fills `normalized` (x̂) and `gradient` (dy·weight), [n] each.
template <typename Real>
BackwardRow<Real> backward_row(const Statistics<Real>& statistics, const Real* x, const Real* dy,
                               const Real* weight, std::int64_t n, Real* normalized,
                               Real* gradient) {
  BackwardRow<Real> row{.statistics = statistics};
  for (std::int64_t i = 0; i < n; ++i) {
    normalized[i] = statistics.normalized(x[i]);
    gradient[i] = dy[i] * weight[i];
  }
  const Real count = static_cast<Real>(n);
  row.c1 = sum<Real>(n, [&](std::int64_t i) { return gradient[i]; }) / count;
  row.c1_magnitude = sum<Real>(n, [&](std::int64_t i) { return std::fabs(gradient[i]); }) / count;
  row.c2 = sum<Real>(n, [&](std::int64_t i) { return gradient[i] * normalized[i]; }) / count;
  row.c2_magnitude =
      sum<Real>(n, [&](std::int64_t i) { return std::fabs(gradient[i] * normalized[i]); }) / count;
  return row;
}

// Statistics that were saved: mean and rstd as given, `spread` unknown (and not needed).
template <typename Real>
Statistics<Real> saved_statistics(const BackwardInputs& in, std::int64_t r) {
  Statistics<Real> row;
  row.first = static_cast<Real>(load(in.mean.dtype, in.mean.data, r));
  row.rstd = static_cast<Real>(load(in.rstd.dtype, in.rstd.data, r));
  row.finite = !std::isnan(row.first) && !std::isnan(row.rstd);
  return row;
}

}  // namespace hipnorm::reference
