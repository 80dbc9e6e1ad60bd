// Mean and variance of a row, for any data.
#pragma once

#include "kernels/cpu/packet.h"
#include "kernels/cpu/work.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// Of `count` elements: their mean less the row's reference point, and the sum of squared
// differences from the mean. Taking the reference point off keeps a large common offset out of the
// rounding.
struct Moments {
  double count = 0;
  double mean = 0;
  double m2 = 0;
};
// The row's first element, or 0 where differences from it could overflow.
template <class T>
HIPNORM_INLINE accumulate_t<T> reference_point(const T* row) {
  using A = accumulate_t<T>;
  constexpr A kLargest = sizeof(A) == 4 ? A(1e38) : A(1e307);
  const A first = to_arithmetic(row[0]);
  return first < kLargest && first > -kLargest ? first : A(0);
}

// Chan, Golub, LeVeque: Algorithms for computing the sample variance (1983), eq. 2.1.
HIPNORM_INLINE Moments combine(Moments a, Moments b) {
  if (a.count == 0) return b;
  const double count = a.count + b.count;
  const double delta = b.mean - a.mean;
  return {count, a.mean + delta * (b.count / count),
          a.m2 + b.m2 + delta * delta * (a.count * b.count / count)};
}

// Σ(x − shift) and Σ(x − shift)².
struct ShiftedSums {
  double sum = 0;
  double squares = 0;
};
template <class T>
HIPNORM_INLINE ShiftedSums shifted_sums(const T* x, std::int64_t n, accumulate_t<T> shift) {
  using P = Packet<T>;
  using A = accumulate_t<T>;
  using V = typename P::V;
  // 4 vectors of each sum: an addition takes 3–4 cycles, and two can start in each.
  constexpr int kChains = 4, kUnroll = kChains / P::kVectors;
  const V s = splat<A>(shift), one = splat<A>(1);
  V sums[kChains] = {}, squares[kChains] = {};
  const auto add = [&](V d, int chain) {
    sums[chain] = fma(d, one, sums[chain]);  // on the multipliers: the adders have d
    squares[chain] = fma(d, d, squares[chain]);
  };
  std::int64_t i = 0;
  for (; i + kStep<T> <= n; i += kStep<T>) {
    for (int p = 0; p < kStep<T> / P::kElements; ++p) {
      const P packet = P::load(x + i + p * P::kElements);
      for (int k = 0; k < P::kVectors; ++k) add(packet.v[k] - s, p % kUnroll * P::kVectors + k);
    }
  }
  for (; i + P::kElements <= n; i += P::kElements) {
    const P packet = P::load(x + i);
    for (int k = 0; k < P::kVectors; ++k) add(packet.v[k] - s, k);
  }
  // Converting one by one is slow for more than a few 16-bit elements.
  if (sizeof(T) == 2 && n - i > 8) {  // past the end: an element of the row, times 0
    T ones[P::kElements];
    for (T& element : ones) element = from_arithmetic<T>(1);
    const P packet = load_head(x + i, n - i, x[i]);
    const P inside = load_head(static_cast<const T*>(ones), n - i, T{});
    for (int k = 0; k < P::kVectors; ++k) add((packet.v[k] - s) * inside.v[k], k);
    i = n;
  }
  ShiftedSums result = {sum<A>((sums[0] + sums[1]) + (sums[2] + sums[3])),
                        sum<A>((squares[0] + squares[1]) + (squares[2] + squares[3]))};
  for (; i < n; ++i) {
    const double d = to_arithmetic(x[i]) - shift;
    result.sum += d;
    result.squares += d * d;
  }
  return result;
}

// Σd² − (Σd)²/n with d = x − shift is as exact as a centred second pass while the shift lies near
// the mean: with |mean − shift| ≤ ½ standard deviation it cancels a quarter. The shift is the mean
// so far, so this nearly always holds; where it does not the chunk, still in cache, is summed again
// about its own mean: the corrected two-pass algorithm.
template <class T>
HIPNORM_INLINE Moments chunk_moments(const T* x, std::int64_t n, accumulate_t<T> shift,
                                     accumulate_t<T> first) {
  const double count = static_cast<double>(n);
  ShiftedSums s = shifted_sums(x, n, shift);
  double delta = s.sum / count;
  if (!(delta * delta * 5 * count <= s.squares)) {  // or NaN
    shift = static_cast<accumulate_t<T>>(shift + delta);
    s = shifted_sums(x, n, shift);
    delta = s.sum / count;
  }
  const double m2 = s.squares - delta * delta * count;
  return {count, (static_cast<double>(shift) - first) + delta, m2 < 0 ? 0 : m2};  // NaN stays
}

template <class A>
struct Wider {
  using type = double;
};
template <>
struct Wider<double> {
  using type = long double;
};

// Two passes in wider arithmetic, scalar: for rows whose sums or squares leave the range of A.
template <class T>
__attribute__((noinline)) Moments wide_moments(const T* x, std::int64_t n, accumulate_t<T> first) {
  using W = typename Wider<accumulate_t<T>>::type;
  W total = 0, m2 = 0;
  for (std::int64_t i = 0; i < n; ++i) total += to_arithmetic(x[i]);
  const W mean = total / static_cast<W>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const W d = to_arithmetic(x[i]) - mean;
    m2 += d * d;
  }
  const double offset = static_cast<double>(mean - first), sum = static_cast<double>(m2);
  if (sum < __builtin_inf()) return {static_cast<double>(n), offset, sum};
  // Beyond double, but the variance may not be: as one element that has it.
  return {1, offset, static_cast<double>(m2 / static_cast<W>(n))};
}

// Whether all elements equal `value`, a finite one.
template <class T>
bool is_constant(const T* x, std::int64_t n, accumulate_t<T> value) {
  bool same = value - value == 0;
  for (std::int64_t i = 0; i < n; ++i) same &= to_arithmetic(x[i]) == value;
  return same;
}

// Of n ≥ 1 elements of a row whose reference point is `first`, gathered from left to right. Inf or
// NaN make the result NaN.
template <class T>
class RowMoments {
  using A = accumulate_t<T>;
  using P = Packet<T>;

 public:
  RowMoments() {}
  RowMoments(const T* x, std::int64_t n, A first) : x_(x), n_(n), first_(first) {
    shift_ = to_arithmetic(x[0]);
    if (n >= P::kElements) {  // the mean of the first packet is nearer to the row's
      const P packet = P::load(x);
      auto v = packet.v[0];
      for (int k = 1; k < P::kVectors; ++k) v += packet.v[k];
      shift_ = sum<A>(v) / P::kElements;
    }
  }

  // Of the chunks that end at or before element `to`; all of them at n.
  __attribute__((noinline)) void advance(std::int64_t to) {
    while (done_ < to) {
      const std::int64_t chunk = n_ - done_ < kChunk ? n_ - done_ : kChunk;
      if (done_ + chunk > to) return;
      total_ = combine(total_, chunk_moments(x_ + done_, chunk, shift_, first_));
      shift_ = static_cast<A>(first_ + total_.mean);
      done_ += chunk;
    }
  }

  // After advance(n).
  Moments result() const {
    // A float square loses bits below 2⁻¹²⁶, and with it a variance near that: 1e-30 keeps 2²³
    // away.
    constexpr double kTinyVariance = sizeof(A) == 4 ? 1e-30 : 1e-290;
    const bool ordinary = total_.m2 > kTinyVariance * total_.count && total_.m2 < __builtin_inf();
    if (__builtin_expect(!ordinary, 0)) {
      const A value = to_arithmetic(x_[0]);
      if (is_constant(x_, n_, value)) {
        return {total_.count, static_cast<double>(value) - first_, 0};
      }
      return wide_moments(x_, n_, first_);
    }
    return total_;
  }

 private:
  // 64 additions in each chain between two combinations in double: roundings of 16-bit inputs,
  // which take few distinct values, repeat and add up.
  static constexpr std::int64_t kChunk = 64 * 4 * kLanes<A>;

  const T* x_ = nullptr;
  std::int64_t n_ = 0, done_ = 0;
  A first_ = 0, shift_ = 0;
  Moments total_;
};
template <class T>
Moments moments(const T* x, std::int64_t n, accumulate_t<T> first) {
  RowMoments<T> m(x, n, first);
  m.advance(n);
  return m.result();
}

// What a forward row is normalised with: x̂ = (x − mean)·rstd + rest.
template <class A>
struct RowScale {
  A mean;  // nearest to the mean
  A rstd;
  A rest;  // what rounding took from the mean, times rstd
};
// Saves a row's mean and rstd and returns its scale.
template <class A>
RowScale<A> save_row(Moments m, A first, double eps, A* mean, A* rstd) {
  const double variance = m.m2 / m.count;
  *mean = static_cast<A>(first + m.mean);
  *rstd =
      variance > Limits<A>::largest ? A(0) : static_cast<A>(1.0 / __builtin_sqrt(variance + eps));
  // x̂ = 0, as x·0: for a constant row, whose rstd is Inf where eps is 0, and for one whose variance
  // overflows, where x − mean might too. Inf and NaN in the row still give NaN.
  if (*rstd == 0 || (m.m2 == 0 && *rstd > 0)) return {0, 0, 0};
  const double rounded_off = (static_cast<double>(first) - *mean) + m.mean;
  return {*mean, *rstd, static_cast<A>(-rounded_off * *rstd)};
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
