// Forward of narrow rows, a row in each lane.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/moments.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// A vector of A as vectors of double: statistics are formed in those.
template <class A>
inline constexpr int kDoubles = static_cast<int>(sizeof(double) / sizeof(A));
template <class A>
struct Doubles {
  F64x part[kDoubles<A>];
};
HIPNORM_INLINE Doubles<double> to_doubles(const F64x& v) { return {{v}}; }
HIPNORM_INLINE F64x from_doubles(const Doubles<double>& d) { return d.part[0]; }
typedef float HalfF32x __attribute__((vector_size(kVecBytes / 2)));
HIPNORM_INLINE Doubles<float> to_doubles(const F32x& v) {  // from memory: converted while loaded
  HalfF32x half[2];
  std::memcpy(half, &v, sizeof v);
  return {{__builtin_convertvector(half[0], F64x), __builtin_convertvector(half[1], F64x)}};
}
template <int... i>
HIPNORM_INLINE F32x joined(HalfF32x low, HalfF32x high, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(low, high, i...);
}
HIPNORM_INLINE F32x from_doubles(const Doubles<float>& d) {
  return joined(__builtin_convertvector(d.part[0], HalfF32x),
                __builtin_convertvector(d.part[1], HalfF32x),
                std::make_integer_sequence<int, kLanes<float>>());
}

// What Moments is of one row: the mean less a reference point, and the sum of squared differences
// from the mean.
template <class A>
struct LaneMoments {
  Doubles<A> first, mean, m2;
  bool ordinary = true;                 // all lanes are
  double out_of_range[kLanes<A>] = {};  // otherwise: not 0 in lanes whose row needs moments()
};

// In double nothing of a float is lost, whatever its size: sums of kNarrow equal ones are exact,
// and so is a constant row's m2 = 0. Two passes.
HIPNORM_INLINE void lane_moments(const Lanes<float, 1>& x, std::int64_t cols,
                                 LaneMoments<float>& m) {
  constexpr int kHalves = kDoubles<float>;
  const F64x n = splat<double>(static_cast<double>(cols));
  F64x sum[kHalves] = {}, m2[kHalves] = {};
  for (std::int64_t j = 0; j < cols; ++j) {
    const Doubles<float> v = to_doubles(x.at(0, j));
    unrolled<kHalves>([&](auto h) HIPNORM_INLINE_LAMBDA { sum[h] += v.part[h]; });
  }
  unrolled<kHalves>([&](auto h) HIPNORM_INLINE_LAMBDA { sum[h] = sum[h] / n; });
  for (std::int64_t j = 0; j < cols; ++j) {
    const Doubles<float> v = to_doubles(x.at(0, j));
    unrolled<kHalves>([&](auto h) HIPNORM_INLINE_LAMBDA {
      const F64x d = v.part[h] - sum[h];
      m2[h] = fma(d, d, m2[h]);
    });
  }
  unrolled<kHalves>([&](auto h) HIPNORM_INLINE_LAMBDA {
    m.first.part[h] = F64x{};
    m.mean.part[h] = sum[h];
    m.m2.part[h] = m2[h];
  });
}

// Relative to the row's first element, then to the mean: the corrected two-pass algorithm. A row
// may leave the range of double, that is to say nearly never.
HIPNORM_INLINE void lane_moments(const Lanes<double, 1>& x, std::int64_t cols,
                                 LaneMoments<double>& m) {
  const F64x n = splat<double>(static_cast<double>(cols)), zero = {};
  const F64x largest = splat<double>(1e307);  // as in reference_point
  const F64x first = (x.at(0, 0) < largest) & (x.at(0, 0) > -largest) ? x.at(0, 0) : zero;
  F64x sum = {}, differs = {}, squares = {};
  for (std::int64_t j = 0; j < cols; ++j) {
    const F64x d = x.at(0, j) - first;
    sum += d;
    differs = d == 0 ? differs : splat<double>(1);
  }
  const F64x shift = first + sum / n;
  sum = zero;
  for (std::int64_t j = 0; j < cols; ++j) {
    const F64x d = x.at(0, j) - shift;
    sum += d;
    squares = fma(d, d, squares);
  }
  const F64x rest = sum / n;
  m.first.part[0] = first;
  m.mean.part[0] = (shift - first) + rest;
  m.m2.part[0] = squares - rest * rest * n;
  const auto ordinary =
      ((m.m2.part[0] > 1e-290 * n) & (m.m2.part[0] < __builtin_inf())) | (differs == 0);
  const F64x out_of_range = ordinary ? zero : splat<double>(1);
  m.ordinary = HIPNORM_ISA::sum<double>(out_of_range) == 0;
  store<double>(m.out_of_range, out_of_range);
}

// save_row (moments.h) in every lane; mean and rstd have room for `count` rows.
template <class A>
struct LaneScale {
  typename Simd<A>::V mean, rstd, rest;
};
template <class A>
HIPNORM_INLINE LaneScale<A> save_lanes(const LaneMoments<A>& m, std::int64_t cols, double eps,
                                       std::int64_t count, A* mean_out, A* rstd_out) {
  using V = typename Simd<A>::V;
  constexpr int kParts = kDoubles<A>;
  const F64x n = splat<double>(static_cast<double>(cols)), zero = {};
  Doubles<A> mean, rstd, flat, rest;
  unrolled<kParts>([&](auto h) HIPNORM_INLINE_LAMBDA {
    const F64x variance = m.m2.part[h] / n;
    rstd.part[h] = variance > static_cast<double>(Limits<A>::largest)
                       ? zero
                       : splat<double>(1) / root(variance + eps);
    mean.part[h] = m.first.part[h] + m.mean.part[h];
    flat.part[h] = m.m2.part[h] == 0 ? splat<double>(1) : zero;
  });
  const V rounded = from_doubles(mean), scale = from_doubles(rstd);
  narrow_head<A>(mean_out, rounded, count);
  narrow_head<A>(rstd_out, scale, count);
  const Doubles<A> mean_back = to_doubles(rounded), rstd_back = to_doubles(scale);
  unrolled<kParts>([&](auto h) HIPNORM_INLINE_LAMBDA {
    rest.part[h] = ((mean_back.part[h] - m.first.part[h]) - m.mean.part[h]) * rstd_back.part[h];
  });
  const auto no_scale = (scale == 0) | ((from_doubles(flat) != 0) & (scale > 0));
  const V none = {};
  return {no_scale ? none : rounded, no_scale ? none : scale, no_scale ? none : from_doubles(rest)};
}

// At most kNarrow columns. ordinary_row(row, y) is called for a row that has to go the usual way
// (f64).
template <class T, class W, class OrdinaryRow>
HIPNORM_INLINE void narrow_forward_rows(const ForwardWork& w, Range rows,
                                        const OrdinaryRow& ordinary_row) {
  using A = accumulate_t<T>;
  using V = typename Simd<A>::V;
  const NarrowParameter<T, W> weight(w.weight, w.cols, 1), bias(w.bias, w.cols, 0);
  RowWriter<T> writer(static_cast<T*>(w.y) + rows.begin * w.cols, w.stream);
  Lanes<A, 1> x;
  for (std::int64_t row = rows.begin; row < rows.end; row += kLanes<A>) {
    const std::int64_t count = rows.end - row < kLanes<A> ? rows.end - row : kLanes<A>;
    const T* const from = static_cast<const T*>(w.x) + row * w.x_stride;
    fetch_rows(from, w.x_stride, w.cols);
    T* y = writer.next(count * w.cols);
    gather<0>(from, w.x_stride, count, w.cols, x);
    LaneMoments<A> m;
    lane_moments(x, w.cols, m);
    const LaneScale<A> scale = save_lanes<A>(m, w.cols, w.eps, count, static_cast<A*>(w.mean) + row,
                                             static_cast<A*>(w.rstd) + row);
    scatter(y, w.cols, count, w.cols, [&](std::int64_t j) HIPNORM_INLINE_LAMBDA {
      const V normal = fma(x.at(0, j) - scale.mean, scale.rstd, scale.rest);
      return fma(normal, splat<A>(weight.value[j]), splat<A>(bias.value[j]));
    });
    if constexpr (sizeof(A) == sizeof(double)) {
      // Again, and only those: what other rows hold must not change a row's bits.
      for (std::int64_t r = 0; __builtin_expect(!m.ordinary, 0) && r < count; ++r) {
        if (m.out_of_range[r] != 0) ordinary_row(row + r, y + r * w.cols);
      }
    }
    writer.wrote(count * w.cols);
  }
  writer.finish();
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
