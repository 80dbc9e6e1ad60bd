// backward_row_dx: dx alone, a block a row, the row in registers: the second kernel of
// backward_two_kernel.
#include <algorithm>

#include "kernels/gpu/backward_row.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/instance_of.h"

namespace hipnorm::gpu {
namespace {

template <class T, int V>
__global__ void __launch_bounds__(launch_bound(kBackwardRowDx, V))
    backward_row_dx_kernel(BackwardRowArgs args) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  // Up to two packets of the weight stay from the sums to dx. More are read twice, the second time
  // from a cache: their registers are worth more as further blocks on the compute unit.
  constexpr bool kKeep = V <= 2;
  constexpr int kRequested = kKeep ? V : 1;
  BlockGroup<A> group;
  const accumulate_t<T> one = 1;
  for (std::int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    const BackwardRowArgs& a = reread(args);
    const RowShape<T> shape = shape_of_row<T>(a, r);
    const BackwardReaders<T> readers(a, r, shape);
    int lane = group.lane;
    forget(lane);
    Packet x[V], dy[V];
    const bool rest = readers.load_whole(lane, group.lanes, shape, x, dy);
    Saved<A> saved = saved_of<T>(a, r);
    ParameterPackets<T> weight[kRequested];
#pragma unroll
    for (int v = 0; v < kRequested; ++v) {
      weight[v].request(a.weight, one, v * group.lanes + lane, shape);
    }
    if (rest) {
      forget(lane);
      readers.load_rest(lane, group.lanes, shape, x, dy);
    }
    saved = usable_part(saved);

    A s1 = 0, s2 = 0;
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      A w[E], d[E], normalised[E];
      weight[v % kRequested].take(a.weight, w);
      unpack(shape, v * group.lanes + lane, x[v], dy[v], saved, normalised, d);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        s1 += d[i] * w[i];
        s2 += d[i] * w[i] * normalised[i];
      }
      if (!kKeep) {  // of the next packet, or of the first for the second time
        weight[0].request(a.weight, one, (v + 1) % V * group.lanes + lane, shape);
      }
      schedule_here();
    }
    group.sum2(s1, s2);

    const A c1 = s1 / static_cast<A>(a.cols), c2 = s2 / static_cast<A>(a.cols);
    char* dx = a.dx + (r * a.cols - shape.shift) * static_cast<std::int64_t>(sizeof(T));
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (V > 1) {
        forget_unpacked(x[v]);
        forget_unpacked(dy[v]);
      }
      A w[E];
      weight[v % kRequested].take(a.weight, w);
      write_dx(shape, dx, v * group.lanes + lane, x[v], dy[v], w, saved, c1, c2);
      if (!kKeep && v + 1 < V) {
        weight[0].request(a.weight, one, (v + 1) * group.lanes + lane, shape);
      }
      schedule_here();
    }
  }
}

}  // namespace

template <class T>
hipError_t backward_row_dx(const BackwardArgs& args, const Launch& launch) {
  return with_vectors<T, kBackwardRowDx>(launch.plan.vectors, [&]<int V>() {
    const Grid grid = {.blocks = launch.plan.tasks,
                       .threads = launch.plan.threads,
                       .lds_bytes = static_cast<std::size_t>(kRowLdsBytes),
                       .stream = static_cast<hipStream_t>(launch.stream)};
    return launch_kernel(backward_row_dx_kernel<T, V>, grid, backward_row_args<T>(args, launch));
  });
}

template hipError_t backward_row_dx<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
