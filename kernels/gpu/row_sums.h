// Sums over one row from packets of it: what the row kernels of backward_sums_first and
// backward_roles share.
#pragma once

#include "kernels/gpu/columns.h"
#include "kernels/gpu/reduce.h"

namespace hipnorm::gpu {

// mean and rstd of a row.
template <class A>
__device__ __forceinline__ SavedRow<A> load_saved(const ColumnArgs& args, std::int64_t row) {
  SavedRow<A> saved;
  saved.mean = static_cast<const A*>(args.mean)[row];
  saved.rstd = static_cast<const A*>(args.rstd)[row];
  return saved;
}

// Adds Σg and Σg·x̂ over the elements of chunk `c`, which `x` and `dy` may exceed.
template <class T>
__device__ __forceinline__ void add_packet(Packet x, const Packet& dy, Chunk c,
                                           SavedRow<accumulate_t<T>> saved,
                                           const accumulate_t<T> (&weight)[kElements<T>],
                                           RowSums<accumulate_t<T>>& sums) {
  using A = accumulate_t<T>;
  settle(saved, x);
  A g[kElements<T>], normalized[kElements<T>];
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    g[i] = product(element<T>(dy, i), weight[i]);
    normalized[i] = saved.normalized(element<T>(x, i));
  }
  mask<T>(g, c);
  mask<T>(normalized, c);
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    sums.c1 += g[i];
    sums.c2 = fused(g[i], normalized[i], sums.c2);
  }
}

// The sums of the `lanes` threads that share a row, in each of them: a power of two of lanes that
// lie together in a wave, or all of the block (`slots`, `parity`: reduce.h). Every thread of the
// block calls it.
template <class A>
__device__ __forceinline__ void add_row_lanes(RowSums<A>& sums, int lanes, Lds<A> slots,
                                              int parity) {
  if (lanes > kWave) {
    block_sum2(sums.c1, sums.c2, slots, parity);
  } else {
    sums.c1 = shuffle_sum(sums.c1, lanes);
    sums.c2 = shuffle_sum(sums.c2, lanes);
  }
}

}  // namespace hipnorm::gpu
