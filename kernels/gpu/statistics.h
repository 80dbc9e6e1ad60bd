// From sums to mean, rstd and x̂: the numerics that all forward kernels share (rules in
// kernels/launch.h).
//
// A row's mean comes from Σ(x − x₀), x₀ its first element, its variance from Σ(x − mean)² over the
// row on the chip: never from Σx² − (Σx)²/N, which loses everything at large means. The mean is
// kept as the nearest number `high` and the remainder `low`, so that (x − high) − low is exact to
// an ulp however large the mean is.
#pragma once

#include <cmath>

#include "kernels/gpu/packet.h"

namespace hipnorm::gpu {

template <class A>
struct Mean {
  A high;
  A low;
  __device__ __forceinline__ A centred(A x) const { return (x - high) - low; }
};

// A positive number to divide by in three instructions, rounded as by a division (Markstein 1990,
// "Computation of elementary functions on the IBM RISC System/6000"); finite numbers only.
template <class A>
struct Divisor {
  A value, reciprocal;
  __device__ __forceinline__ explicit Divisor(A n)
      : value(n), reciprocal(n > A{0} ? A{1} / n : A{0}) {}
  __device__ __forceinline__ Divisor(A n, A reciprocal_of_n)
      : value(n), reciprocal(reciprocal_of_n) {}
  __device__ __forceinline__ A divide(A x) const {
    const A quotient = x * reciprocal;
    return fused(fused(-quotient, value, x), reciprocal, quotient);
  }
};

// first + m without losing the rounding error (Knuth's two-sum).
template <class A>
__device__ __forceinline__ Mean<A> mean_at(A first, A m) {
  const A high = first + m;
  const A part = high - first;
  const A low = (first - (high - part)) + (m - part);
  return {high, low};
}
template <class A>
__device__ __forceinline__ Mean<A> mean_of(A first, A sum, A cols) {
  return mean_at(first, sum / cols);
}

// Σ(x − origin) of a packet. The sum of eight 16-bit numbers, and what is left of it, are exact, or
// off by less than their differences are: unless it overflows, which bf16's may.
template <class T>
__device__ __forceinline__ accumulate_t<T> sum_about(const accumulate_t<T> (&x)[kElements<T>],
                                                     accumulate_t<T> origin) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  if constexpr (sizeof(T) == 2) {
    const A sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    return fused(A{-E}, origin, sum);
  } else {
    A sum = x[0] - origin;
#pragma unroll
    for (int i = 1; i < E; ++i) sum += x[i] - origin;
    return sum;
  }
}

template <class A>
struct Extremes;
template <>
struct Extremes<float> {
  // Σ(x − mean)² outside these: squares may have overflowed or, with eps = 0, underflowed.
  static constexpr float kSmallest = 0x1p-90f, kLargest = 0x1p126f;
  // What centred values are multiplied with before they are squared again.
  static constexpr float kUp = 0x1p64f, kDown = 0x1p-40f;
  static constexpr float kMax = 0x1.fffffep127f;
};
template <>
struct Extremes<double> {
  static constexpr double kSmallest = 0x1p-900, kLargest = 0x1p1020;
  static constexpr double kUp = 0x1p500, kDown = 0x1p-300;
  static constexpr double kMax = 0x1.fffffffffffffp1023;
};

// What x − mean has to be multiplied with before Σ(x − mean)² = `squares` is formed again; 1 but
// for one row in millions. NaN stays as it is.
template <class A>
__device__ __forceinline__ A scale_of_squares(A squares, double eps) {
  using E = Extremes<A>;
  if (squares > E::kLargest) return E::kDown;
  return squares < E::kSmallest && eps < static_cast<double>(E::kSmallest) ? E::kUp : A{1};
}

// 1/√(squares/cols/scale² + eps). A variance beyond A's range gives 0, as launch.h has it.
template <class A>
__device__ __forceinline__ A rstd_of(A squares, A cols, A scale, double eps) {
  const A variance = squares / cols;
  if (scale == A{1}) return A{1} / sqrt(variance + static_cast<A>(eps));
  // eps may be negligible or not: scaled like the variance it stays in range.
  const A scaled_eps = static_cast<A>(eps) * scale * scale;
  const A root = sqrt(variance + scaled_eps);
  const A unscaled = variance / scale / scale;
  if (unscaled > Extremes<A>::kMax) return A{0};
  return scale / root;
}

// 1/√x to within one unit in the last place, without a division: the device's estimate (2 units on
// NVIDIA, 1 on AMD) and a Newton step, which 0 and Inf do not survive.
__device__ __forceinline__ double reciprocal_root(double x) { return 1 / sqrt(x); }
__device__ __forceinline__ float reciprocal_root(float x) {
  const float estimate = rsqrtf(x);
  const float better = fmaf(estimate * 0.5f, fmaf(-x * estimate, estimate, 1.0f), estimate);
  return x > 0 && x <= Extremes<float>::kMax ? better : estimate;
}

// x̂ is 0 where rstd is 0 (the variance overflowed) or Inf (a constant row, eps = 0), although
// x − mean may be Inf there; a NaN goes through.
template <class A>
__device__ __forceinline__ bool usable(A rstd) {
  return rstd != A{0} && !(rstd > Extremes<A>::kMax);
}

template <class A>
__device__ __forceinline__ bool is_finite(A value) {
  return value - value == A{0};
}

// How a forward normalises a row: x̂ = (x − mean)·rstd + rest, with rest what rounding took from
// the mean, times rstd.
template <class A>
struct RowScale {
  A mean;
  A rstd;
  A rest;
  __device__ __forceinline__ A normalised(A x) const { return (x - mean) * rstd + rest; }
};
template <class A>
__device__ __forceinline__ RowScale<A> scale_of(Mean<A> mean, A rstd) {
  if (!usable(rstd)) return {0, 0, 0};  // x̂ = x·0
  return {mean.high, rstd, -mean.low * rstd};
}

// mean and rstd of a row whose Σ(x − x₀) is not finite, or whose Σ(x − mean)² is out of range.
// Reads the row again, by elements; one row in millions. `lane` of `lanes` that share the row;
// sum_all: the sum of a value over them.
template <class A>
struct RowStatistics {
  Mean<A> mean;
  A rstd;
};
template <class T, class SumAll>
__device__ __forceinline__ RowStatistics<accumulate_t<T>> statistics_of_extreme_row(
    const T* x, std::int64_t cols, int lane, int lanes, double eps, SumAll sum_all) {
  using A = accumulate_t<T>;
  const A first = cols > 0 ? to_accumulate(x[0]) : A{0};
  A unusual = 0, shifted = 0;
#pragma unroll 1
  for (std::int64_t i = lane; i < cols; i += lanes) {
    const A value = to_accumulate(x[i]);
    unusual += value - value;  // 0, NaN of Inf and NaN
    shifted += value - first;
  }
  unusual = sum_all(unusual);
  shifted = sum_all(shifted);
  const Mean<A> mean = mean_of(first, shifted, static_cast<A>(cols));
  const auto squares_times = [&](A scale) {
    A sum = 0;
#pragma unroll 1
    for (std::int64_t i = lane; i < cols; i += lanes) {
      const A centred = mean.centred(to_accumulate(x[i])) * scale;
      sum += centred * centred;
    }
    return sum_all(sum);
  };
  const A scale = scale_of_squares(squares_times(1), eps);
  const A squares = squares_times(scale);
  if (unusual != A{0}) return {{unusual, A{0}}, unusual};
  // Finite elements, but not their differences: nor is the variance.
  if (!is_finite(shifted)) return {{first, A{0}}, A{0}};
  return {mean, rstd_of(squares, static_cast<A>(cols), scale, eps)};
}

}  // namespace hipnorm::gpu
