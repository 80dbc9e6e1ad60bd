// Backward kernels of one instruction set: two loops over columns, and the five kernels made of
// them.
#pragma once

#include "kernels/cpu/narrow_backward.h"
#include "kernels/cpu/output.h"
#include "kernels/cpu/parameter.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// One row's inputs.
template <class T>
struct BackwardRow {
  using A = accumulate_t<T>;
  const T* x;
  const T* dy;
  A mean;
  A rstd;
};
template <class T>
HIPNORM_INLINE BackwardRow<T> backward_row(const BackwardWork& w, std::int64_t row) {
  using A = accumulate_t<T>;
  A mean = static_cast<const A*>(w.mean)[row], rstd = static_cast<const A*>(w.rstd)[row];
  const A nan = static_cast<A>(__builtin_nan(""));  // Packet<bf16>::round wants clean NaNs
  if (mean != mean) mean = nan;
  if (rstd != rstd) rstd = nan;
  // x̂ = 0 by definition, as x·0: where the variance overflowed (rstd = 0), since x − mean might
  // overflow too, and for a constant row without eps (rstd = Inf), which then has dx = 0.
  if (rstd == 0 || rstd > Limits<A>::largest) mean = rstd = 0;
  return {static_cast<const T*>(w.x) + row * w.x_stride,
          static_cast<const T*>(w.dy) + row * w.dy_stride, mean, rstd};
}

struct RowSums {
  double g = 0;         // Σg, g = dy·weight
  double g_normal = 0;  // Σg·x̂
};

// One part's row of dW or dB in packet order. A gradient that is not asked for is gathered in a
// packet that nobody reads.
template <class T>
class Accumulator {
  using A = accumulate_t<T>;
  using P = Packet<T>;

 public:
  // `partial` is [parts, pitch] or null; the columns in `columns` of row `part` are set to zero.
  Accumulator(void* partial, std::int64_t part, std::int64_t pitch, Range columns)
      : data_(unread_), mask_(0) {
    if (partial == nullptr) return;
    data_ = static_cast<A*>(partial) + part * pitch;
    mask_ = ~std::int64_t{0};
    for (std::int64_t i = columns.begin; i < columns.end; i += P::kElements) {
      for (int k = 0; k < P::kVectors; ++k) store<A>(data_ + i + k * kLanes<A>, typename P::V{});
    }
  }
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  struct View {
    A* data;
    std::int64_t mask;
    HIPNORM_INLINE A* at(std::int64_t i, int k) const { return data + (i & mask) + k * kLanes<A>; }
  };
  View view() const { return {data_, mask_}; }

 private:
  A* data_;
  std::int64_t mask_;
  A unread_[P::kElements] = {};
};

// The column sums that a task adds to.
template <class T>
struct Columns {
  Accumulator<T> dweight, dbias;
  Columns(const BackwardWork& w, std::int64_t part, Range columns)
      : dweight(w.dweight, part, w.pitch, columns), dbias(w.dbias, part, w.pitch, columns) {}
};

// The sum phase of kRows rows together, over `columns`: adds to `sums` (kSums) and to dW and dB
// (kColumns). Fetches the same columns of `ahead` (kRows rows of x, `ahead_stride` apart) into L2.
// Several rows at a time share the loads of the weight and the loads and stores of dW and dB, which
// for wide rows come from L2.
template <class T, class W, int kRows, bool kSums, bool kColumns>
void accumulate(const BackwardRow<T>* rows, Range columns, const Parameter<T, W>& weight,
                const Columns<T>& column_sums, const T* ahead, std::int64_t ahead_stride,
                RowSums* sums) {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  using V = typename P::V;
  // 4096 elements: few enough additions a lane that the sums, combined in double, stay exact to
  // about 2⁻²² of their magnitudes whatever N is.
  constexpr std::int64_t kBlock = 4096;

  const auto w = weight.view();
  const auto dweight = column_sums.dweight.view(), dbias = column_sums.dbias.view();
  const T *x[kRows], *dy[kRows];
  V mean[kRows], rstd[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = rows[r].x;
    dy[r] = rows[r].dy;
    mean[r] = splat<A>(rows[r].mean);
    rstd[r] = splat<A>(rows[r].rstd);
  }
  for (std::int64_t block = columns.begin; block < columns.end; block += kBlock) {
    const std::int64_t end = columns.end - block < kBlock ? columns.end : block + kBlock;
    V g_sum[kRows], g_normal_sum[kRows];
    unrolled<kRows>([&](auto r) HIPNORM_INLINE_LAMBDA { g_sum[r] = g_normal_sum[r] = V{}; });
    const auto packet = [&]<bool kTail>(std::int64_t i) HIPNORM_INLINE_LAMBDA {
      V dw[P::kVectors], db[P::kVectors];
      const P gamma = w.template get<kTail>(i, end);
      unrolled<kColumns ? P::kVectors : 0>([&](auto k) HIPNORM_INLINE_LAMBDA {
        dw[k] = load<A>(dweight.at(i, k));
        db[k] = load<A>(dbias.at(i, k));
      });
      unrolled<kRows>([&](auto r) HIPNORM_INLINE_LAMBDA {
        // Past the end: x̂ of an element of the row, which is finite if the row is, and no gradient.
        const P px = kTail ? load_head(x[r] + i, end - i, x[r][i]) : P::load(x[r] + i);
        const P pdy = kTail ? load_head(dy[r] + i, end - i, T{}) : P::load(dy[r] + i);
        unrolled<P::kVectors>([&](auto k) HIPNORM_INLINE_LAMBDA {
          const V normal = (px.v[k] - mean[r]) * rstd[r];
          if constexpr (kColumns) {
            dw[k] = fma(pdy.v[k], normal, dw[k]);
            db[k] += pdy.v[k];
          }
          if constexpr (kSums) {
            const V g = pdy.v[k] * gamma.v[k];
            g_sum[r] += g;
            g_normal_sum[r] = fma(g, normal, g_normal_sum[r]);
          }
        });
      });
      unrolled<kColumns ? P::kVectors : 0>([&](auto k) HIPNORM_INLINE_LAMBDA {
        store<A>(dweight.at(i, k), dw[k]);
        store<A>(dbias.at(i, k), db[k]);
      });
    };
    std::int64_t i = block;
    for (; i + kStep<T> <= end; i += kStep<T>) {
      for (int r = 0; r < kRows; ++r) fetch_lines<4>(ahead + r * ahead_stride + i);
      for (int p = 0; p < kStep<T> / P::kElements; ++p) {
        packet.template operator()<false>(i + p * P::kElements);
      }
    }
    for (; i + P::kElements <= end; i += P::kElements) packet.template operator()<false>(i);
    if (i < end) packet.template operator()<true>(i);
    unrolled<kSums ? kRows : 0>([&](auto r) HIPNORM_INLINE_LAMBDA {
      sums[r].g += sum<A>(g_sum[r]);
      sums[r].g_normal += sum<A>(g_normal_sum[r]);
    });
  }
}

// The apply phase of kRows rows over `columns`: dx = rstd·(dy·weight − c1 − x̂·c2), to `dx` and
// those after it, `work.cols` apart. With kColumns it adds to dW and dB as well. Fetches the same
// columns `ahead` elements behind dy's into L2. Several rows share the loads and conversions of the
// weight (f16 2304x36864 on two cores of a Zen 4: 15.7 ms one by one, 14.9 in pairs, 14.5 four
// together).
template <class T, class W, bool kColumns, int kRows>
void apply(const BackwardRow<T>* rows, const RowSums* sums, const BackwardWork& work, T* dx,
           std::int64_t ahead, Range columns, const Parameter<T, W>& weight,
           const Columns<T>& column_sums) {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  using V = typename P::V;
  constexpr std::int64_t kOutAhead = 2048 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t block = kRows * work.cols, out_ahead = block < kOutAhead ? block : kOutAhead;
  const double per_element = 1.0 / static_cast<double>(work.cols);
  const T *x[kRows], *dy[kRows];
  V mean[kRows], rstd[kRows], c1[kRows], minus_c2[kRows];
  T* outs[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = rows[r].x;
    dy[r] = rows[r].dy;
    mean[r] = splat<A>(rows[r].mean);
    rstd[r] = splat<A>(rows[r].rstd);
    c1[r] = splat<A>(static_cast<A>(sums[r].g * per_element));
    minus_c2[r] = splat<A>(static_cast<A>(-sums[r].g_normal * per_element));
    outs[r] = dx + r * work.cols + columns.begin;
  }
  const auto w = weight.view();
  const auto dweight = column_sums.dweight.view(), dbias = column_sums.dbias.view();
  constexpr bool kAnyColumn = Parameter<T, W>::kAnyColumn && !kColumns;
  const std::int64_t width = columns.end - columns.begin;
  write_rows<kAnyColumn, kRows>(
      outs, width, work.stream, width,
      [=]<Store kStore>(T* const* out, std::int64_t begin, std::int64_t end) HIPNORM_INLINE_LAMBDA {
        begin += columns.begin;
        end += columns.begin;
        produce<kStore, kRows>(
            out, begin, end, out_ahead,
            [=]<bool kTail>(std::int64_t i) HIPNORM_INLINE_LAMBDA {
              Made<T, kRows> made;
              const P gamma = w.template get<kTail>(i, end);
              unrolled<kRows>([&](auto r) HIPNORM_INLINE_LAMBDA {
                const P px = kTail ? load_head(x[r] + i, end - i, x[r][i]) : P::load(x[r] + i);
                const P pdy = kTail ? load_head(dy[r] + i, end - i, T{}) : P::load(dy[r] + i);
                for (int k = 0; k < P::kVectors; ++k) {
                  const V normal = (px.v[k] - mean[r]) * rstd[r];
                  // g is rounded before c1 is taken off: for N = 1 they are equal, and dx is 0.
                  const V g = pdy.v[k] * gamma.v[k];
                  made.row[r].v[k] = fma(minus_c2[r], normal, g - c1[r]) * rstd[r];
                  if constexpr (kColumns) {
                    A* dw = dweight.at(i, k);
                    A* db = dbias.at(i, k);
                    store<A>(dw, fma(pdy.v[k], normal, load<A>(dw)));
                    store<A>(db, load<A>(db) + pdy.v[k]);
                  }
                }
              });
              return made;
            },
            [=](std::int64_t i) HIPNORM_INLINE_LAMBDA {
              for (int r = 0; r < kRows; ++r) fetch_lines<4 / kRows>(dy[r] + ahead + i);
            });
      },
      [](std::int64_t) {});
}

// The next rows are fetched at least so many bytes ahead (short rows: f32 20000x128, two rows at a
// time, 0.43 ns an element; 0.47 with 2048, 0.58 with the next rows alone).
inline constexpr std::int64_t kFetchAhead = 4096;
// And so many where the next rows would displace those in work (f32 2304x103008 on two cores of an
// Emerald Rapids with 2 MB of L2: 151 ms; 226 with the next row, 164 with 16 KB).
inline constexpr std::int64_t kFetchNear = 65536;

// Rows of one part over `columns`, rows_per_block at a time: sums, then dx where kSums. The next
// rows' x is fetched with the sums and their dy with dx, so that memory never idles (two cores of a
// Zen 5: f16 2304x36864 8.9 ms, 11.5 with x alone; f32 18.0 and 22.5).
template <class T, class W, bool kSums, bool kColumns>
void backward_part(const BackwardWork& w, std::int64_t part, Range columns) {
  const Range range = subrange(w.rows, w.parts, part);
  if (is_narrow<T>(w.cols, range, kNarrowBackwardBytes)) {  // then there is one strip only
    narrow_backward_part<T, W, kSums, kColumns>(w, part);
    return fence();
  }
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Columns<T> column_sums(w, part, kColumns ? columns : Range{});
  constexpr int kMostRows = 4;
  // Fetching is only a hint: past the part's end it may name rows of another part, or none.
  const std::int64_t row_bytes = w.cols * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t near = w.rows_per_block, far = kFetchAhead / row_bytes;
  const std::int64_t rows_ahead = near > far ? near : far;
  constexpr std::int64_t kNear = kFetchNear / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t ahead = w.fetch_near ? kNear : w.x_stride * rows_ahead;
  const std::int64_t dy_ahead = w.fetch_near ? kNear : w.dy_stride * rows_ahead;
  for (std::int64_t first = range.begin; first < range.end;) {
    const std::int64_t left = range.end - first;
    const int count = w.rows_per_block >= 4 && left >= 4   ? 4
                      : w.rows_per_block >= 2 && left >= 2 ? 2
                                                           : 1;
    BackwardRow<T> rows[kMostRows];
    RowSums sums[kMostRows];
    for (int r = 0; r < count; ++r) rows[r] = backward_row<T>(w, first + r);
    if (count == 4) {
      accumulate<T, W, 4, kSums, kColumns>(rows, columns, weight, column_sums, rows[0].x + ahead,
                                           w.x_stride, sums);
    } else if (count == 2) {
      accumulate<T, W, 2, kSums, kColumns>(rows, columns, weight, column_sums, rows[0].x + ahead,
                                           w.x_stride, sums);
    } else {
      accumulate<T, W, 1, kSums, kColumns>(rows, columns, weight, column_sums, rows[0].x + ahead,
                                           w.x_stride, sums);
    }
    if constexpr (kSums) {
      T* const dx = static_cast<T*>(w.dx) + first * w.cols;
      // Streaming stores want rows that lie alike to cache lines.
      const int together = !w.stream || row_bytes % 64 == 0 ? count : 1;
      for (int r = 0; r < count; r += together) {
        T* const out = dx + r * w.cols;
        if (together == 4) {
          apply<T, W, false, 4>(rows, sums, w, out, dy_ahead, columns, weight, column_sums);
        } else if (together == 2) {
          apply<T, W, false, 2>(rows, sums, w, out, dy_ahead, columns, weight, column_sums);
        } else {
          apply<T, W, false, 1>(rows + r, sums + r, w, out, dy_ahead, columns, weight, column_sums);
        }
      }
    }
    first += count;
  }
  fence();
}

template <class T, class W>
void backward_rows(const BackwardWork& w, std::int64_t part) {
  const bool column_sums = w.dweight != nullptr || w.dbias != nullptr;
  if (w.dx == nullptr) {
    backward_part<T, W, false, true>(w, part, {0, w.cols});
  } else if (column_sums) {
    backward_part<T, W, true, true>(w, part, {0, w.cols});
  } else {
    backward_part<T, W, true, false>(w, part, {0, w.cols});
  }
}

template <class T, class W>
void backward_columns(const BackwardWork& w, std::int64_t part, std::int64_t strip) {
  backward_part<T, W, false, true>(w, part, subrange(w.cols, w.strips, strip, kStripAlignment));
}

template <class T, class W>
void backward_rows_dx(const BackwardWork& w, std::int64_t part) {
  backward_part<T, W, true, false>(w, part, {0, w.cols});
}

template <class T, class W>
void backward_strip_sums(const BackwardWork& w, std::int64_t strip) {
  const Range columns = subrange(w.cols, w.strips, strip, kStripAlignment);
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Columns<T> none(w, 0, {});
  for (std::int64_t i = 0; i < w.rows; ++i) {
    const BackwardRow<T> row = backward_row<T>(w, i);
    RowSums sums;
    accumulate<T, W, 1, true, false>(&row, columns, weight, none, row.x + w.x_stride, 0, &sums);
    double* out = w.sums + (strip * w.rows + i) * 2;
    out[0] = sums.g;
    out[1] = sums.g_normal;
  }
}

template <class T, class W>
void backward_strip_apply(const BackwardWork& w, std::int64_t part, std::int64_t strip) {
  const Range columns = subrange(w.cols, w.strips, strip, kStripAlignment);
  if (w.dx == nullptr) return backward_part<T, W, false, true>(w, part, columns);
  const bool with_columns = w.dweight != nullptr || w.dbias != nullptr;
  const Parameter<T, W> weight(w.weight, w.weight_size, w.cols, 1);
  const Columns<T> column_sums(w, part, columns);
  const Range range = subrange(w.rows, w.parts, part);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const BackwardRow<T> row = backward_row<T>(w, i);
    RowSums sums;
    for (std::int64_t s = 0; s < w.strips; ++s) {
      sums.g += w.sums[(s * w.rows + i) * 2];
      sums.g_normal += w.sums[(s * w.rows + i) * 2 + 1];
    }
    T* dx = static_cast<T*>(w.dx) + i * w.cols;
    if (with_columns) {
      apply<T, W, true, 1>(&row, &sums, w, dx, w.dy_stride, columns, weight, column_sums);
    } else {
      apply<T, W, false, 1>(&row, &sums, w, dx, w.dy_stride, columns, weight, column_sums);
    }
  }
  fence();
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
