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

  Normaliser() {}
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

// Statistics read caches and write nothing, so that memory would idle for as long as those of a
// whole row take. Where they cost most, with elements that are converted, the next row's are formed
// in pieces between pieces of this row's output: 4 KB are over before what was fetched meanwhile
// has arrived (f16 2304x16384 on two cores of a Zen 4: 3.5 ms, 3.7 by whole rows; 2, 8 and 16 KB
// are no better, nor is one loop for both). For f32 long runs of reads win: 7.5 ms by whole
// rows, 8.6 so.
template <class T>
inline constexpr bool kPieces = sizeof(T) == 2;
inline constexpr std::int64_t kPiece = 2048;  // elements

// kRows rows that are normalised together: they share the loads and conversions of weight and bias
// (f16 2304x16384, two rows: 3.5 ms instead of 4.3).
template <class T, int kRows>
struct Rows {
  const T* x[kRows];
  const T* ahead[kRows];  // at column i, memory from here + i on is fetched, if any is (kFetch)
  T* y[kRows];
  RowScale<accumulate_t<T>> scale[kRows];
};

// y of the columns in `columns`. done(end) is called when those before `end` are written. kFetch:
// meanwhile fetches the same columns at `ahead`, since memory would idle while a core computes (f16
// 2304x16384: 3.5 ms, 4.6 without; but f32, where loads are the limit, 9.4 and 7.6, and rows that
// are shorter than a piece, which the processor follows by itself, f16 16384x1000: 2.4 and 1.9).
template <bool kFetch, class T, class W, int kRows, class Done>
HIPNORM_INLINE void normalise(const Rows<T, kRows>& rows, Range columns,
                              const Parameter<T, W>& weight, const Parameter<T, W>& bias,
                              bool streamed, const Done& done) {
  using P = Packet<T>;
  constexpr std::int64_t kBurst = kStep<T> / kRows;  // of all rows together as many bytes as of one
  constexpr int kElements = P::kElements, kPackets = kBurst / kElements;
  static_assert(kPackets > 0);
  const auto w = weight.view(), b = bias.view();
  T* y[kRows];
  for (int r = 0; r < kRows; ++r) y[r] = rows.y[r] + columns.begin;
  write_rows<Parameter<T, W>::kAnyColumn, kRows>(
      y, columns.end - columns.begin, streamed, kPieces<T> ? kPiece : columns.end - columns.begin,
      [&]<Store kStore>(T* const* outs, std::int64_t begin,
                        std::int64_t end) HIPNORM_INLINE_LAMBDA {
        begin += columns.begin;
        end += columns.begin;
        std::int64_t i = begin;
        T* out[kRows];
        const T* ahead[kRows];
        Normaliser<T> row[kRows];
        for (int r = 0; r < kRows; ++r) {
          out[r] = outs[r] - begin;
          ahead[r] = rows.ahead[r];
          row[r] = Normaliser<T>(rows.x[r], rows.scale[r]);
        }
        for (; i + kBurst <= end; i += kBurst) {
          for (int r = 0; kFetch && r < kRows; ++r) fetch_lines<4 / kRows>(ahead[r] + i);
          U32x bits[kRows][kPackets];
          for (int p = 0; p < kPackets; ++p) {
            const std::int64_t at = i + p * kElements;
            const P gamma = w.template get<false>(at, end), beta = b.template get<false>(at, end);
            for (int r = 0; r < kRows; ++r) {
              bits[r][p] = row[r].template packet<false>(at, end, gamma, beta).bits();
            }
          }
          for (int r = 0; r < kRows; ++r) {
            for (int p = 0; p < kPackets; ++p) {
              put<kStore>(out[r] + i + p * kElements, bits[r][p]);
            }
          }
        }
        for (; i + kElements <= end; i += kElements) {
          const P gamma = w.template get<false>(i, end), beta = b.template get<false>(i, end);
          for (int r = 0; r < kRows; ++r) {
            put<kStore>(out[r] + i, row[r].template packet<false>(i, end, gamma, beta).bits());
          }
        }
        if (i < end) {
          const P gamma = w.template get<true>(i, end), beta = b.template get<true>(i, end);
          for (int r = 0; r < kRows; ++r) {
            store_head(out[r] + i, row[r].template packet<true>(i, end, gamma, beta), end - i);
          }
        }
      },
      [&](std::int64_t end) { done(columns.begin + end); });
}

// Rows apart that lie alike to cache lines: 1, 2, … 64.
template <class T>
std::int64_t rows_alike(std::int64_t cols) {
  const std::uint64_t odd = static_cast<std::uint64_t>(cols) * sizeof(T) % 64;
  return odd == 0 ? 1 : static_cast<std::int64_t>(64 / (odd & (~odd + 1)));
}

// The rows in `rows` and, kRows − 1 times, those `apart` farther: kRows together.
template <class T, class W, int kRows, bool kFetch>
void forward_together(const ForwardWork& w, Range rows, std::int64_t apart,
                      const Parameter<T, W>& weight, const Parameter<T, W>& bias) {
  using A = accumulate_t<T>;
  // Where rows follow one another, what is fetched is needed for statistics a piece later; where
  // they lie apart, right after this piece, and no gap is fetched. A fetch is a hint that cannot
  // fault: past the end it may name rows of another part, or none.
  const std::int64_t ahead = w.x_stride + (w.x_stride == w.cols ? kPiece : 0);
  RowMoments<T> moments[kRows];
  A first[kRows];
  Rows<T, kRows> now, next;
  const auto start = [&](std::int64_t row) HIPNORM_INLINE_LAMBDA {
    for (int r = 0; r < kRows; ++r, row += apart) {
      next.x[r] = static_cast<const T*>(w.x) + row * w.x_stride;
      next.ahead[r] = next.x[r] + ahead;
      next.y[r] = static_cast<T*>(w.y) + row * w.cols;
      first[r] = reference_point(next.x[r]);
      moments[r] = RowMoments<T>(next.x[r], w.cols, first[r]);
    }
  };
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    if (!kPieces<T> || row == rows.begin) start(row);
    now = next;
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = row + r * apart;
      moments[r].advance(w.cols);
      now.scale[r] = save_row(moments[r].result(), first[r], w.eps, static_cast<A*>(w.mean) + i,
                              static_cast<A*>(w.rstd) + i);
    }
    const bool more = kPieces<T> && row + 1 < rows.end;
    if (more) start(row + 1);
    normalise<kFetch>(now, {0, w.cols}, weight, bias, w.stream, [&](std::int64_t end) {
      for (int r = 0; more && r < kRows; ++r) moments[r].advance(end);
    });
  }
}

template <class T, class W, int kRows>
void forward_together(const ForwardWork& w, Range rows, std::int64_t apart,
                      const Parameter<T, W>& weight, const Parameter<T, W>& bias) {
  if (kPieces<T> && w.cols > kPiece) {
    forward_together<T, W, kRows, kPieces<T>>(w, rows, apart, weight, bias);
  } else {
    forward_together<T, W, kRows, false>(w, rows, apart, weight, bias);
  }
}

// One or two rows at a time; narrow ones as many as a vector has lanes.
template <class T, class W>
void forward_rows(const ForwardWork& w, Range rows) {
  using A = accumulate_t<T>;
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Parameter<T, W> bias(w.bias, w.bias_size, w.cols, 0);
  if (is_narrow<T>(w.cols, rows, kNarrowForwardBytes<T>)) {
    narrow_forward_rows<T, W>(w, rows, [&](std::int64_t row, T* y) {
      const T* x = static_cast<const T*>(w.x) + row * w.x_stride;
      const A first = reference_point(x);
      Rows<T, 1> one = {{x}, {x}, {y}, {}};
      one.scale[0] = save_row(moments(x, w.cols, first), first, w.eps,
                              static_cast<A*>(w.mean) + row, static_cast<A*>(w.rstd) + row);
      normalise<false>(one, {0, w.cols}, weight, bias, false, [](std::int64_t) {});
    });
    return fence();
  }
  if (w.rows_per_block >= 2) {
    // Rows of a pair lie alike to cache lines, so that one head of both brings both to whole ones.
    const std::int64_t alike = w.stream && Parameter<T, W>::kAnyColumn ? rows_alike<T>(w.cols) : 1;
    const std::int64_t apart = (rows.end - rows.begin) / 2 / alike * alike;
    forward_together<T, W, 2>(w, {rows.begin, rows.begin + apart}, apart, weight, bias);
    rows.begin += 2 * apart;
  }
  forward_together<T, W, 1>(w, rows, 0, weight, bias);
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
    normalise<false>(Rows<T, 1>{{x}, {x}, {y}, {scale}}, columns, weight, bias, w.stream,
                     [](std::int64_t) {});
  }
  fence();
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
