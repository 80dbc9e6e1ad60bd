// How far a result may lie from the truth. The one place with tolerances, and their reasons.
//
// Every bound is  output_ulps · (spacing of the output type at the true value)  for the rounding of
// what is stored, plus the rounding of the arithmetic before it, in the accumulate type (f32; f64
// for f64), proportional to the magnitudes that enter. With
//
//   u   unit roundoff of the accumulate type: 2⁻²⁴, for f64 2⁻⁵³
//   s   growth of a row sum's error: |error of Σt| ≤ u·s·Σ|t|.
//       Roundings that average: s = √N/4. One chain of L additions of like-signed terms errs by
//       0.24·u·√L·Σ|t| (standard deviation: the root of Σ over k of (u·k·t)²·0.54/3), and n chains
//       side by side by 1/√n of that. The slowest kernel admitted has 4 lanes and one accumulator:
//       L = N/4, 0.06·u·√N; 4 standard deviations are s = √N/4.
//       16-bit inputs take few distinct values, so their roundings repeat and need not average: a
//       chain errs by up to u·L/2. Kernels have 16 lanes or more there and must not chain more than
//       1024 elements before they combine in something wider: L ≤ 64, s = √N/4 + min(N, 1024)/32.
//   A   spread: rstd·Σ|x − x₀|/N, x₀ the row's first element, which kernels subtract first. About 1
//       for ordinary rows, large where x₀ is an outlier, however large the mean.
//
// x̂ from x (forward):  |error| ≤ shift + scale·|x̂|
//   shift = u·(4 + s)·A             of the mean: its sum, division, two subtractions
//   scale = u·(6 + s/2 + A) + shift²   of rstd: half of the variance's relative error, which is
//                                   the sum's, that of x − x₀ (≤ u·A), and the mean's squared; the
//                                   root, the division, the products. Never the mean itself: the
//                                   statistics are those of x − x₀, so a large mean costs nothing.
// x̂ from a mean and rstd that were saved (backward): rounding the mean to f32 moves x̂ by
//   |mean|·rstd·u; this is the one place where a large mean may show.
// Products below the smallest normal number err by `tiny` absolutely.
#pragma once

#include <cstdint>

#include "csrc/dispatch/problem.h"

namespace hipnorm::reference {

struct Tolerance {
  DType x;                  // the input's dtype, also that of y and dX
  double unit;              // u
  double tiny;              // smallest subnormal of the accumulate type
  double output_ulps;       // of y and dX, in ulp of x's dtype
  double weight_grad_ulps;  // of dW and dB, in ulp of the weight's dtype
  double chain;             // longest run of elements whose roundings may repeat; 0: they average
};

// f16, bf16: 1 ulp (½ for correct rounding, ½ for a value that fp32 put on the wrong side of a
// tie). f32, f64: ½, as the accumulate type is the output type. dW, dB: ½ for all.
const Tolerance& tolerance(DType x);

// What the bounds of one row depend on.
struct RowMagnitudes {
  std::int64_t cols = 0;
  double mean = 0;
  double rstd = 0;
  double spread = 0;  // Σ|x − x₀|/N
};

// |error of x̂| ≤ constant + relative·|x̂|.
struct NormalizedBound {
  double constant = 0;
  double relative = 0;
};
// A constant row (spread 0) and one whose variance overflows (rstd 0) have x̂ = 0 exactly.
NormalizedBound normalized_from_x(const Tolerance& t, const RowMagnitudes& row);
// Backward: `given` when mean and rstd are the inputs by which the result is judged, else they are
// those of x, and what saving them in the accumulate type loses is allowed.
NormalizedBound normalized_from_saved(const Tolerance& t, const RowMagnitudes& row, bool given);

double mean_bound(const Tolerance& t, const RowMagnitudes& row);
double rstd_bound(const Tolerance& t, const RowMagnitudes& row);

// y = x̂·weight + bias. Without the output's rounding.
struct OutputBound {
  NormalizedBound normalized;
  double unit;
  double tiny;
  double operator()(double normalized_abs, double weight_abs, double bias_abs) const {
    return weight_abs * (normalized.constant + (normalized.relative + 2 * unit) * normalized_abs) +
           unit * bias_abs + tiny;
  }
};
OutputBound output_bound(const Tolerance& t, const RowMagnitudes& row);

// Row sums that enter dX: with g = dy·weight, c1 = Σg/N, c2 = Σg·x̂/N.
struct GradientSums {
  double c1 = 0;
  double c2 = 0;
  double c1_magnitude = 0;  // Σ|g|/N
  double c2_magnitude = 0;  // Σ|g·x̂|/N
};
// dX = rstd·(g − c1 − x̂·c2). Without the output's rounding.
struct InputGradientBound {
  double constant;
  double per_normalized;  // × |x̂|
  double per_gradient;    // × |g|
  double operator()(double normalized_abs, double gradient_abs) const {
    return constant + per_normalized * normalized_abs + per_gradient * gradient_abs;
  }
};
InputGradientBound input_gradient_bound(const Tolerance& t, const RowMagnitudes& row,
                                        const NormalizedBound& normalized, const GradientSums& sums,
                                        bool given);

// dW = Σdy·x̂ and dB = Σdy over M rows. `magnitude` = Σ|dy·x̂| or Σ|dy|; `normalized_error` =
// Σ|dy|·|error of x̂| (0 for dB). A chain of M additions errs by 0.24·u·√M (above); of 10⁵ columns
// the worst lies at 4.5 standard deviations, 1.1·u·√M. Without the output's rounding.
double column_bound(const Tolerance& t, std::int64_t rows, double magnitude,
                    double normalized_error);

}  // namespace hipnorm::reference
