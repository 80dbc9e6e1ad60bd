#include "tests/reference/tolerance.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/number_format.h"

namespace hipnorm::reference {
namespace {

constexpr Tolerance make(DType x, double output_ulps, double chain) {
  const DType accumulate = accumulate_type(x);
  return {x, unit_roundoff(accumulate), smallest_subnormal(accumulate), output_ulps, 0.5, chain};
}
constexpr Tolerance kHalf = make(DType::f16, 1, 1024);
constexpr Tolerance kBfloat16 = make(DType::bf16, 1, 1024);
constexpr Tolerance kFloat = make(DType::f32, 0.5, 0);
constexpr Tolerance kDouble = make(DType::f64, 0.5, 0);

// s
double sum_growth(const Tolerance& t, const RowMagnitudes& row) {
  const double n = static_cast<double>(row.cols);
  return std::sqrt(n) / 4 + std::min(n, t.chain) / 32;
}

bool flat(const RowMagnitudes& row) { return row.spread == 0 || row.rstd == 0; }

// Error of the mean that is formed as x₀ + Σ(x − x₀)/N, before it is rounded.
double shift_error(const Tolerance& t, const RowMagnitudes& row) {
  return t.unit * (4 + sum_growth(t, row)) * row.spread;
}

double scale_error(const Tolerance& t, const RowMagnitudes& row) {
  const double shift = shift_error(t, row) * row.rstd;
  return t.unit * (6 + sum_growth(t, row) / 2 + row.spread * row.rstd) + shift * shift;
}

}  // namespace

const Tolerance& tolerance(DType x) {
  switch (x) {
    case DType::f16: return kHalf;
    case DType::bf16: return kBfloat16;
    case DType::f32: return kFloat;
    case DType::f64:
    case DType::none: break;
  }
  return kDouble;
}

NormalizedBound normalized_from_x(const Tolerance& t, const RowMagnitudes& row) {
  if (flat(row)) return {};
  return {shift_error(t, row) * row.rstd + t.tiny * (2 * row.rstd + 1), scale_error(t, row)};
}

NormalizedBound normalized_from_saved(const Tolerance& t, const RowMagnitudes& row, bool given) {
  // x − mean, times rstd: two roundings.
  NormalizedBound bound{t.tiny * (row.rstd + 1), 2 * t.unit};
  if (given) return bound;
  if (flat(row)) return bound;
  const NormalizedBound from_x = normalized_from_x(t, row);
  bound.constant += from_x.constant + std::fabs(row.mean) * row.rstd * t.unit;
  bound.relative += from_x.relative;
  return bound;
}

double mean_bound(const Tolerance& t, const RowMagnitudes& row) {
  return shift_error(t, row) + t.unit * std::fabs(row.mean) + t.tiny;
}

double rstd_bound(const Tolerance& t, const RowMagnitudes& row) {
  const double relative = flat(row) ? 6 * t.unit : scale_error(t, row);
  return relative * row.rstd + t.tiny;
}

OutputBound output_bound(const Tolerance& t, const RowMagnitudes& row) {
  return {normalized_from_x(t, row), t.unit, t.tiny};
}

InputGradientBound input_gradient_bound(const Tolerance& t, const RowMagnitudes& row,
                                        const NormalizedBound& normalized, const GradientSums& sums,
                                        bool given) {
  const double s = sum_growth(t, row);
  const double c1 = std::fabs(sums.c1);
  const double c2 = std::fabs(sums.c2);
  // g has one rounding, g·x̂ two more and x̂'s error; then the sum and the division.
  const double c1_error = t.unit * (4 + s) * sums.c1_magnitude + t.tiny;
  const double c2_error = t.unit * (5 + s) * sums.c2_magnitude +
                          normalized.constant * sums.c1_magnitude +
                          normalized.relative * sums.c2_magnitude + t.tiny;
  // Four roundings reach each of g, c1 and x̂·c2; rstd's own error, where it counts, all three.
  const double roundings = 4 * t.unit + (given || flat(row) ? 0 : scale_error(t, row));
  return {row.rstd * (roundings * c1 + c1_error + normalized.constant * (c2 + c2_error)) +
              t.tiny * (2 * row.rstd + 1),
          row.rstd * (roundings * c2 + c2_error + normalized.relative * c2), row.rstd * roundings};
}

double column_bound(const Tolerance& t, std::int64_t rows, double magnitude,
                    double normalized_error) {
  const double m = static_cast<double>(rows);
  return t.unit * (3 + 1.1 * std::sqrt(m)) * magnitude + normalized_error + t.tiny * m;
}

}  // namespace hipnorm::reference
