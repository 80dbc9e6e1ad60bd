// Forward kernels of one instruction set.
#pragma once

#include "kernels/cpu/moments.h"
#include "kernels/cpu/narrow_forward.h"
#include "kernels/cpu/output.h"
#include "kernels/cpu/parameter.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// What turns elements of one row into y = x̂·weight + bias.
template <class T>
struct Normaliser {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  using V = typename P::V;
  const T* x;
  V mean, rstd, rest;

  Normaliser(const T* row, RowScale<A> scale)
      : x(row),
        mean(splat<A>(scale.mean)),
        rstd(splat<A>(scale.rstd)),
        rest(splat<A>(scale.rest)) {}
  // The packet at element i; kTail: the last one, which `end` cuts.
  template <bool kTail>
  HIPNORM_INLINE P packet(std::int64_t i, std::int64_t end, const P& weight, const P& bias) const {
    const P in = kTail ? load_head(x + i, end - i, x[i]) : P::load(x + i);
    P out;
    for (int k = 0; k < P::kVectors; ++k) {
      out.v[k] = fma(fma(in.v[k] - mean, rstd, rest), weight.v[k], bias.v[k]);
    }
    return out;
  }
};

// y of the columns in `columns` of one row. Meanwhile fetches those columns of the next row: memory
// would idle while a core computes, and the core wait for its next row (f32 2304x36864, two cores:
// 23.7 ms without, 17.8 ms with it; a plain copy takes 13.2).
template <class T, class W>
HIPNORM_INLINE void normalise(const T* x, const T* next_x, T* y, Range columns,
                              RowScale<accumulate_t<T>> scale, const Parameter<T, W>& weight,
                              const Parameter<T, W>& bias, bool streamed) {
  const Normaliser<T> row(x, scale);
  const auto w = weight.view(), b = bias.view();
  write_row<Parameter<T, W>::kAnyColumn>(
      y + columns.begin, columns.end - columns.begin, streamed,
      [=]<Store kStore>(T* out, std::int64_t begin, std::int64_t end) HIPNORM_INLINE_LAMBDA {
        begin += columns.begin;
        end += columns.begin;
        produce<kStore>(
            out, begin, end,
            [=]<bool kTail>(std::int64_t i) {
              return row.template packet<kTail>(i, end, w.template get<kTail>(i, end),
                                                b.template get<kTail>(i, end));
            },
            [=](std::int64_t i) { fetch_lines<4>(next_x + i); });
      });
}

// Two rows that are normalised together, and the two that come after them.
template <class T>
struct Pair {
  const T* x[2];
  const T* next_x[2];
  T* y[2];
  RowScale<accumulate_t<T>> scale[2];
};

// The same for elements begin … end of a pair, to out[0] and out[1]: they share the loads and
// conversions of weight and bias (f16 2304x36864: 8.9 ms instead of 11.9).
template <class T, class W, Store kStore>
void normalise_pair(const Pair<T>& pair, T* first_out, T* second_out, std::int64_t begin,
                    std::int64_t end, const Parameter<T, W>& weight, const Parameter<T, W>& bias) {
  using P = Packet<T>;
  constexpr std::int64_t kBurst = kStep<T> / 2;  // of both rows together as many bytes as of one
  constexpr int kElements = P::kElements, kPackets = kBurst / kElements;
  const Normaliser<T> rows[2] = {{pair.x[0], pair.scale[0]}, {pair.x[1], pair.scale[1]}};
  const T* const next[2] = {pair.next_x[0], pair.next_x[1]};
  const auto w = weight.view(), b = bias.view();
  T* const y[2] = {first_out, second_out};
  std::int64_t i = begin;
  for (; i + kBurst <= end; i += kBurst) {
    for (int r = 0; r < 2; ++r) fetch_lines<2>(next[r] + i);
    U32x bits[2][kPackets];
    for (int p = 0; p < kPackets; ++p) {
      const std::int64_t at = i + p * kElements;
      const P gamma = w.template get<false>(at, end), beta = b.template get<false>(at, end);
      for (int r = 0; r < 2; ++r) {
        bits[r][p] = rows[r].template packet<false>(at, end, gamma, beta).bits();
      }
    }
    for (int r = 0; r < 2; ++r) {
      for (int p = 0; p < kPackets; ++p)
        put<kStore>(y[r] + (i - begin) + p * kElements, bits[r][p]);
    }
  }
  for (; i + kElements <= end; i += kElements) {
    const P gamma = w.template get<false>(i, end), beta = b.template get<false>(i, end);
    for (int r = 0; r < 2; ++r) {
      put<kStore>(y[r] + (i - begin), rows[r].template packet<false>(i, end, gamma, beta).bits());
    }
  }
  if (i < end) {
    const P gamma = w.template get<true>(i, end), beta = b.template get<true>(i, end);
    for (int r = 0; r < 2; ++r) {
      store_head(y[r] + (i - begin), rows[r].template packet<true>(i, end, gamma, beta), end - i);
    }
  }
}
template <class T, class W>
void normalise_rows(const Pair<T>& pair, std::int64_t cols, const Parameter<T, W>& weight,
                    const Parameter<T, W>& bias, bool streamed) {
  T *const y0 = pair.y[0], *const y1 = pair.y[1];
  const std::int64_t to_line = elements_to_line(y0, cols);
  const bool aligned = is_aligned(y0) && is_aligned(y1);
  if (!streamed || aligned ||
      (Parameter<T, W>::kAnyColumn && to_line == elements_to_line(y1, cols))) {
    const std::int64_t head = !streamed ? cols : aligned ? 0 : to_line;
    if (head > 0) normalise_pair<T, W, Store::cached>(pair, y0, y1, 0, head, weight, bias);
    if (head < cols) {
      normalise_pair<T, W, Store::streamed>(pair, y0 + head, y1 + head, head, cols, weight, bias);
    }
  } else {
    constexpr std::int64_t kBlock = Aligner::kBlockBytes / static_cast<std::int64_t>(sizeof(T));
    Aligner aligners[2] = {Aligner(y0), Aligner(y1)};
    for (std::int64_t begin = 0; begin < cols; begin += kBlock) {
      const std::int64_t end = cols - begin < kBlock ? cols : begin + kBlock;
      normalise_pair<T, W, Store::cached>(pair, static_cast<T*>(aligners[0].next()),
                                          static_cast<T*>(aligners[1].next()), begin, end, weight,
                                          bias);
      for (Aligner& a : aligners) a.wrote((end - begin) * static_cast<std::int64_t>(sizeof(T)));
    }
    for (Aligner& a : aligners) a.finish();
  }
}

// Rows apart that lie alike to cache lines: 1, 2, … 64.
template <class T>
std::int64_t rows_alike(std::int64_t cols) {
  const std::uint64_t odd = static_cast<std::uint64_t>(cols) * sizeof(T) % 64;
  return odd == 0 ? 1 : static_cast<std::int64_t>(64 / (odd & (~odd + 1)));
}

// One or two rows at a time; narrow ones as many as a vector has lanes.
template <class T, class W>
void forward_rows(const ForwardWork& w, Range rows) {
  using A = accumulate_t<T>;
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Parameter<T, W> bias(w.bias, w.bias_size, w.cols, 0);
  const auto scale_of = [&](std::int64_t row, const T* x) {
    const A first = reference_point(x);
    return save_row(moments(x, w.cols, first), first, w.eps, static_cast<A*>(w.mean) + row,
                    static_cast<A*>(w.rstd) + row);
  };
  if (is_narrow<T>(w.cols, rows, kNarrowForwardBytes<T>)) {
    narrow_forward_rows<T, W>(w, rows, [&](std::int64_t row, T* y) {
      const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
      normalise<T, W>(x, x, y, {0, w.cols}, scale_of(row, x), weight, bias, false);
    });
    return fence();
  }
  const auto x_of = [&](std::int64_t row) { return static_cast<const T*>(w.x) + row * w.x_stride; };
  T* const y = static_cast<T*>(w.y);
  std::int64_t row = rows.begin;
  if (w.rows_per_block >= 2) {
    // A pair is `apart` rows apart, so that one head of both brings both to whole cache lines.
    const std::int64_t apart = w.stream && Parameter<T, W>::kAnyColumn ? rows_alike<T>(w.cols) : 1;
    for (; row + 2 * apart <= rows.end; row += apart) {
      for (const std::int64_t end = row + apart; row < end; ++row) {
        const std::int64_t other = row + apart, next = row + 1 < end ? row + 1 : row + 1 + apart;
        Pair<T> pair = {{x_of(row), x_of(other)},
                        {x_of(next), x_of(next + apart)},
                        {y + row * w.cols, y + other * w.cols},
                        {}};
        pair.scale[0] = scale_of(row, pair.x[0]);
        pair.scale[1] = scale_of(other, pair.x[1]);
        normalise_rows<T, W>(pair, w.cols, weight, bias, w.stream);
      }
    }
  }
  // Fetching ahead is only a hint: past the end it may name rows of another part, or none.
  for (; row < rows.end; ++row) {
    const T* x = x_of(row);
    normalise<T, W>(x, x + w.x_stride, y + row * w.cols, {0, w.cols}, scale_of(row, x), weight,
                    bias, w.stream);
  }
  fence();
}

template <class T>
void forward_strip_moments(const ForwardWork& w, std::int64_t strip) {
  const Range columns = subrange(w.cols, w.strips, strip, kStripAlignment);
  for (std::int64_t row = 0; row < w.rows; ++row) {
    const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
    const std::int64_t width = columns.end - columns.begin;
    const Moments m = moments(x + columns.begin, width, reference_point(x));
    double* out = w.moments + (strip * w.rows + row) * 2;
    out[0] = m.mean;
    out[1] = m.m2 * (static_cast<double>(width) / m.count);  // Inf where only m2 / count is finite
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
