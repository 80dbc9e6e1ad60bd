// Forward kernels of one instruction set.
#pragma once

#include "kernels/cpu/moments.h"
#include "kernels/cpu/output.h"
#include "kernels/cpu/parameter.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// y = x̂·weight + bias for the columns in `columns` of one row. Meanwhile fetches those columns of
// the next row: memory would idle while a core computes, and the core wait for its next row (f32
// 2304x36864, two cores: 23.7 ms without, 17.8 ms with it; a plain copy takes 13.2).
template <class T, class W>
HIPNORM_INLINE void normalise(const T* x, const T* next_x, T* y, Range columns,
                              RowScale<accumulate_t<T>> scale, const Parameter<T, W>& weight,
                              const Parameter<T, W>& bias, bool streamed) {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  using V = typename P::V;
  const V mean = splat<A>(scale.mean), rstd = splat<A>(scale.rstd), rest = splat<A>(scale.rest);
  const auto w = weight.view(), b = bias.view();
  write_row(y + columns.begin, columns.end - columns.begin, streamed,
            [=]<Store kStore>(T* out, std::int64_t begin, std::int64_t end) {
              begin += columns.begin;
              end += columns.begin;
              const auto packet = [=]<bool kTail>(std::int64_t i) {
                const P in = kTail ? load_head(x + i, end - i, x[i]) : P::load(x + i);
                const P gamma = w.template get<kTail>(i), beta = b.template get<kTail>(i);
                P result;
                for (int k = 0; k < P::kVectors; ++k) {
                  const V normal = fma(in.v[k] - mean, rstd, rest);
                  result.v[k] = fma(normal, gamma.v[k], beta.v[k]);
                }
                return result;
              };
              produce<kStore>(out, begin, end, packet,
                              [=](std::int64_t i) { fetch_lines<4>(next_x + i); });
            });
}

template <class T, class W>
void forward_rows(const ForwardWork& w, Range rows) {
  using A = accumulate_t<T>;
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Parameter<T, W> bias(w.bias, w.bias_size, w.cols, 0);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
    T* y = static_cast<T*>(w.y) + row * w.cols;
    const A first = reference_point(x);
    const RowScale<A> scale =
        save_row(moments(x, w.cols, first), first, w.eps, static_cast<A*>(w.mean) + row,
                 static_cast<A*>(w.rstd) + row);
    const T* next_x = row + 1 < rows.end ? x + w.x_stride : x;
    normalise<T, W>(x, next_x, y, {0, w.cols}, scale, weight, bias, w.stream);
  }
  fence();
}

template <class T>
void forward_strip_moments(const ForwardWork& w, std::int64_t strip) {
  const Range columns = subrange(w.cols, w.strips, strip, kStripAlignment);
  for (std::int64_t row = 0; row < w.rows; ++row) {
    const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
    const Moments m = moments(x + columns.begin, columns.end - columns.begin, reference_point(x));
    double* out = w.moments + (strip * w.rows + row) * 2;
    out[0] = m.mean;
    out[1] = m.m2;
  }
}

template <class T, class W>
void forward_strip_apply(const ForwardWork& w, std::int64_t strip) {
  using A = accumulate_t<T>;
  const Range columns = subrange(w.cols, w.strips, strip, kStripAlignment);
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Parameter<T, W> bias(w.bias, w.bias_size, w.cols, 0);
  for (std::int64_t row = 0; row < w.rows; ++row) {
    const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
    T* y = static_cast<T*>(w.y) + row * w.cols;
    Moments total;
    for (std::int64_t s = 0; s < w.strips; ++s) {
      const Range range = subrange(w.cols, w.strips, s, kStripAlignment);
      const double* m = w.moments + (s * w.rows + row) * 2;
      total = combine(total, {static_cast<double>(range.end - range.begin), m[0], m[1]});
    }
    const A first = reference_point(x);
    if (!(total.m2 < __builtin_inf())) total = wide_moments(x, w.cols, first);
    A mean, rstd;
    const RowScale<A> scale = save_row(total, first, w.eps, &mean, &rstd);
    if (strip == 0) {
      static_cast<A*>(w.mean)[row] = mean;
      static_cast<A*>(w.rstd)[row] = rstd;
    }
    const T* next_x = row + 1 < w.rows ? x + w.x_stride : x;
    normalise<T, W>(x, next_x, y, columns, scale, weight, bias, w.stream);
  }
  fence();
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
