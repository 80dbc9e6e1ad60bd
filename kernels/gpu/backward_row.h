// What the backward kernels of a row on a group of lanes share.
#pragma once

#include <bit>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {

struct BackwardRowArgs {
  Rows dy;
  Rows x;
  const void* mean;
  const void* rstd;
  Parameter weight;
  char* dx;       // null: not asked for
  void* dweight;  // partial rows; null: not asked for
  void* dbias;
  const char* chunks_of;       // the tensor whose rows the chunks follow,
  std::int64_t chunks_stride;  // bytes
  std::int64_t rows;
  std::int64_t pitch;
  int cols;
  int lanes_log2;  // of a row's lanes, where they are part of a wave
};

template <class T>
BackwardRowArgs backward_row_args(const BackwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const Plan& plan = launch.plan;
  char* workspace = static_cast<char*>(args.workspace);
  const int groups = launch.config.rows_per_block;
  return {
      .dy = make_rows(args.dy, args.dy_stride, p.rows, p.cols, sizeof(T)),
      .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
      .mean = args.mean,
      .rstd = args.rstd,
      .weight = {p.grads.dx ? args.weight : nullptr, p.weight != p.x},
      .dx = p.grads.dx ? static_cast<char*>(args.dx) : nullptr,
      .dweight = p.grads.dweight ? workspace + plan.dweight_offset : nullptr,
      .dbias = p.grads.dbias ? workspace + plan.dbias_offset : nullptr,
      .chunks_of = static_cast<const char*>(p.grads.dx ? args.dx : args.x),
      .chunks_stride = (p.grads.dx ? p.cols : args.x_stride) * std::int64_t{sizeof(T)},
      .rows = p.rows,
      .pitch = plan.pitch,
      .cols = static_cast<int>(p.cols),
      .lanes_log2 = groups > 0 ? std::countr_zero(static_cast<unsigned>(plan.threads / groups)) : 0,
  };
}

template <class T>
__device__ __forceinline__ RowShape<T> shape_of_row(const BackwardRowArgs& a, std::int64_t r) {
  return {shift_of<T>(a.chunks_of + r * a.chunks_stride), a.cols};
}

// Row r of x and dy, which have its shape. Readers are made where they are used: they are cheaper
// to form than to keep.
template <class T>
struct BackwardReaders {
  RowReader dy;
  RowReader x;
  __device__ __forceinline__ BackwardReaders(const BackwardRowArgs& a, std::int64_t r,
                                             const RowShape<T>& shape)
      : dy(reader_of<T>(a.dy, a.dy.row(r), shape)) {
    // Only dbias does without x: its reader finds nothing to read.
    if (a.dx != nullptr || a.dweight != nullptr) x = reader_of<T>(a.x, a.x.row(r), shape);
  }
  // Requests the row, but for a rest of it; returns whether there is one.
  template <int V>
  __device__ __forceinline__ bool load_whole(int lane, int lanes, const RowShape<T>& shape,
                                             Packet (&to_x)[V], Packet (&to_dy)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      to_x[v] = x.load_whole(v * lanes + lane);
      to_dy[v] = dy.load_whole(v * lanes + lane);
    }
    return dy.has_rest(shape) || (x.chunk0 != nullptr && x.has_rest(shape));
  }
  template <int V>
  __device__ __forceinline__ void load_rest(int lane, int lanes, const RowShape<T>& shape,
                                            Packet (&to_x)[V], Packet (&to_dy)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (x.chunk0 != nullptr) x.load_rest(to_x[v], v * lanes + lane, shape);
      dy.load_rest(to_dy[v], v * lanes + lane, shape);
    }
  }
};

// The saved mean and rstd as x̂ = (x − mean)·rstd wants them: where rstd is 0 or Inf, x̂ = x·0.
template <class A>
struct Saved {
  A mean = 0;
  A rstd = 0;
  __device__ __forceinline__ A normalised(A x) const { return (x - mean) * rstd; }
};
template <class T>
__device__ __forceinline__ Saved<accumulate_t<T>> saved_of(const BackwardRowArgs& a,
                                                           std::int64_t r) {
  using A = accumulate_t<T>;
  if (r >= a.rows) return {};
  return {static_cast<const A*>(a.mean)[r], static_cast<const A*>(a.rstd)[r]};
}
template <class A>
__device__ __forceinline__ Saved<A> usable_part(Saved<A> saved) {
  return usable(saved.rstd) ? saved : Saved<A>{};
}

// dy and x̂ of chunk v, 0 outside the row.
template <class T>
__device__ __forceinline__ void unpack(const RowShape<T>& shape, int v, const Packet& x,
                                       const Packet& dy, const Saved<accumulate_t<T>>& saved,
                                       accumulate_t<T> (&normalised)[kElements<T>],
                                       accumulate_t<T> (&d)[kElements<T>]) {
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    normalised[i] = saved.normalised(element<T>(x, i));
    d[i] = element<T>(dy, i);
  }
  shape.mask(normalised, v);
  shape.mask(d, v);
}

// Stores chunk v of dx.
template <class T>
__device__ __forceinline__ void write_dx(const RowShape<T>& shape, char* chunk0, int v,
                                         const Packet& x, const Packet& dy,
                                         const accumulate_t<T> (&weight)[kElements<T>],
                                         const Saved<accumulate_t<T>>& saved, accumulate_t<T> c1,
                                         accumulate_t<T> c2) {
  using A = accumulate_t<T>;
  A dx[kElements<T>];
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    // Rounded as in c1's sum, from which it must not differ where N is 1.
    const A gradient = product(element<T>(dy, i), weight[i]);
    dx[i] = (gradient - c1 - saved.normalised(element<T>(x, i)) * c2) * saved.rstd;
  }
  shape.store(chunk0, v, pack<T>(dx));
}

}  // namespace hipnorm::gpu
