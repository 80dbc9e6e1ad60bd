// Backward of narrow rows, a row in each lane.
#pragma once

#include "kernels/cpu/lanes.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// What lies in a column's lanes: elements of x and dy, and the part's sums of dy·x̂ and dy over the
// rows that were there.
enum Lane { kX, kDy, kDWeight, kDBias, kLaneKinds };
template <class T>
using BackwardLanes = Lanes<accumulate_t<T>, kLaneKinds>;

// The sums over the lanes, into row `part` of `partial` ([parts, pitch], packet order) or nowhere,
// where that is null.
template <class T, int kKind>
void write_sums(const BackwardLanes<T>& lanes, void* partial, std::int64_t part, std::int64_t pitch,
                std::int64_t cols) {
  using A = accumulate_t<T>;
  constexpr std::int64_t kElements = Packet<T>::kElements;
  if (partial == nullptr) return;
  A* out = static_cast<A*>(partial) + part * pitch;
  for (std::int64_t j = 0; j < (cols + kElements - 1) / kElements * kElements; ++j) {
    out[position<T, A>(j)] = j < cols ? sum<A>(lanes.at(kKind, j)) : A(0);
  }
}

// backward_row (backward.h) in every lane; 0 in those without a row.
template <class A>
struct LaneStatistics {
  typename Simd<A>::V mean, rstd;

  LaneStatistics(const A* means, const A* rstds, std::int64_t count)
      : mean(widen_head<A>(means, count)), rstd(widen_head<A>(rstds, count)) {
    const auto nan = splat<A>(static_cast<A>(__builtin_nan(""))), zero = splat<A>(0);
    mean = mean != mean ? nan : mean;
    rstd = rstd != rstd ? nan : rstd;
    const auto none = (rstd == 0) | (rstd > Limits<A>::largest);
    mean = none ? zero : mean;
    rstd = none ? zero : rstd;
  }
};

// backward_part (backward.h) for at most kNarrow columns.
template <class T, class W, bool kSums, bool kColumns>
void narrow_backward_part(const BackwardWork& w, std::int64_t part) {
  using A = accumulate_t<T>;
  using V = typename Simd<A>::V;
  const NarrowParameter<T, W> weight(w.weight, w.cols, 1);
  const Range rows = subrange(w.rows, w.parts, part);
  const V n = splat<A>(static_cast<A>(w.cols));
  T* const dx = kSums ? static_cast<T*>(w.dx) + rows.begin * w.cols : nullptr;
  RowWriter<T> writer(dx, kSums && w.stream);
  BackwardLanes<T> lanes;
  for (std::int64_t j = 0; kColumns && j < w.cols; ++j) {
    lanes.at(kDWeight, j) = lanes.at(kDBias, j) = V{};
  }
  for (std::int64_t row = rows.begin; row < rows.end; row += kLanes<A>) {
    const std::int64_t count = rows.end - row < kLanes<A> ? rows.end - row : kLanes<A>;
    const T* const x = static_cast<const T*>(w.x) + row * w.x_stride;
    const T* const dy = static_cast<const T*>(w.dy) + row * w.dy_stride;
    fetch_rows(x, w.x_stride, w.cols);
    fetch_rows(dy, w.dy_stride, w.cols);
    T* const out = kSums ? writer.next(count * w.cols) : nullptr;
    gather<kX>(x, w.x_stride, count, w.cols, lanes);
    gather<kDy>(dy, w.dy_stride, count, w.cols, lanes);
    const LaneStatistics<A> lane(static_cast<const A*>(w.mean) + row,
                                 static_cast<const A*>(w.rstd) + row, count);
    const auto normal = [&](std::int64_t j) HIPNORM_INLINE_LAMBDA {
      return (lanes.at(kX, j) - lane.mean) * lane.rstd;
    };
    const auto g = [&](std::int64_t j) HIPNORM_INLINE_LAMBDA {
      return lanes.at(kDy, j) * splat<A>(weight.value[j]);
    };
    V g_sum = {}, g_normal_sum = {};
    for (std::int64_t j = 0; j < w.cols; ++j) {
      if constexpr (kColumns) {
        lanes.at(kDWeight, j) = fma(lanes.at(kDy, j), normal(j), lanes.at(kDWeight, j));
        lanes.at(kDBias, j) += lanes.at(kDy, j);
      }
      if constexpr (kSums) {
        g_sum += g(j);
        g_normal_sum = fma(g(j), normal(j), g_normal_sum);
      }
    }
    if constexpr (kSums) {
      const V c1 = g_sum / n, minus_c2 = -(g_normal_sum / n);
      scatter(out, w.cols, count, w.cols, [&](std::int64_t j) HIPNORM_INLINE_LAMBDA {
        return fma(minus_c2, normal(j), g(j) - c1) * lane.rstd;
      });
      writer.wrote(count * w.cols);
    }
  }
  writer.finish();
  if constexpr (kColumns) {
    write_sums<T, kDWeight>(lanes, w.dweight, part, w.pitch, w.cols);
    write_sums<T, kDBias>(lanes, w.dbias, part, w.pitch, w.cols);
  }
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
