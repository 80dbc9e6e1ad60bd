// backward_wave and backward_row: persistent; a row on part of a wave, a wave, or a block, and with
// it, in registers, the group's sums for dweight and dbias.
#include "kernels/gpu/backward_row.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/instance_of.h"
#include "kernels/gpu/partial_rows.h"
#include "kernels/gpu/prepare.h"

namespace hipnorm::gpu {
namespace {

// kAhead: the loads of the group's next row are under way while it works on this one.
template <class T, int V, bool kBlock, bool kAhead, bool kWide>
__device__ __forceinline__ void backward_rows(const BackwardRowArgs& args) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  typename GroupOf<T, kBlock>::type group(args.lanes_log2);
  const int lanes = group.lanes;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * group.count;
  const std::int64_t step = std::int64_t{gridDim.x} * group.count;
  // Of all rows of the group (plan() sees to that), so that weights and sums can stay.
  const RowShape<T> shape = shape_of_row<T>(args, first_row + group.index);
  ParameterPackets<T, kWide> weight[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    weight[v].request(args.weight, 1, v * lanes + group.lane, shape);
  }

  // A group without a row has zeros for one: in x, dy, mean and rstd.
  const auto load = [&](const BackwardRowArgs& a, std::int64_t r, int lane, Packet(&x)[V],
                        Packet(&dy)[V]) {
    if (r < a.rows) {
      return BackwardReaders<T>(a, r, shape).load_whole(lane, lanes, shape, x, dy);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = dy[v] = zero_packet();
    return false;
  };
  Packet x[V], dy[V], next_x[V], next_dy[V];
  Saved<A> next_saved;
  bool next_rest = false;
  if (kAhead) {
    next_saved = saved_of<T>(args, first_row + group.index);
    next_rest = load(args, first_row + group.index, group.lane, next_x, next_dy);
  }

  A dweight[V][E] = {}, dbias[V][E] = {};
  for (std::int64_t block_row = first_row; block_row < args.rows; block_row += step) {
    const BackwardRowArgs& a = reread(args);
    const std::int64_t r = block_row + group.index;
    int lane = group.lane;
    forget(lane);
    Saved<A> saved;
    bool rest;
    if (kAhead) {
      saved = next_saved;
      rest = next_rest;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        x[v] = next_x[v];
        dy[v] = next_dy[v];
      }
      next_saved = saved_of<T>(a, r + step);
      next_rest = load(a, r + step, lane, next_x, next_dy);
    } else {
      saved = saved_of<T>(a, r);
      rest = load(a, r, lane, x, dy);
    }
    if (rest) {
      forget(lane);
      BackwardReaders<T>(a, r, shape).load_rest(lane, lanes, shape, x, dy);
    }
    saved = usable_part(saved);

    A s1 = 0, s2 = 0;
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      A w[E], d[E], normalised[E];
      weight[v].take(a.weight, w);
      unpack(shape, v * lanes + lane, x[v], dy[v], saved, normalised, d);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        dbias[v][i] += d[i];
        dweight[v][i] += d[i] * normalised[i];
        s1 += d[i] * w[i];
        s2 += d[i] * w[i] * normalised[i];
      }
      pin(dweight[v]);
      pin(dbias[v]);
      schedule_here();
    }
    if (a.dx == nullptr) continue;

    group.sum2(s1, s2);
    if (r >= a.rows) continue;
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
      weight[v].take(a.weight, w);
      write_dx(shape, dx, v * lanes + lane, x[v], dy[v], w, saved, c1, c2);
      schedule_here();
    }
  }

  forget(group.lane);
  const std::int64_t offset = std::int64_t{blockIdx.x} * args.pitch;
  A* const parts[2] = {static_cast<A*>(args.dweight), static_cast<A*>(args.dbias)};
  if constexpr (!kBlock) {
    if (group.count > 1) {
      const auto shift_of_group = [&](int g) {
        return shift_of<T>(args.chunks_of + (first_row + g) * args.chunks_stride);
      };
      add_groups<T>(parts[0], offset, dweight, shift_of_group, args.cols, group);
      add_groups<T>(parts[1], offset, dbias, shift_of_group, args.cols, group);
      return;
    }
  }
  write_partial_row<T>(parts[0], offset, dweight, shape, group);
  write_partial_row<T>(parts[1], offset, dbias, shape, group);
}

template <class T, int V, bool kWide>
__global__ void __launch_bounds__(kWide&& V == 3 ? 256 : launch_bound(kBackwardWave, V))
    backward_wave_kernel(BackwardRowArgs args) {
  backward_rows<T, V, false, true, kWide>(args);
}
template <class T, int V, bool kAhead, bool kWide>
__global__ void __launch_bounds__(launch_bound(kBackwardRow, V))
    backward_row_kernel(BackwardRowArgs args) {
  backward_rows<T, V, true, kAhead, kWide>(args);
}

using Kernel = void (*)(BackwardRowArgs);
template <class T, int V>
Kernel wave_kernel(const Problem& p) {
  if constexpr (sizeof(T) == 2) {
    if (p.has_weight && p.weight != p.x) return backward_wave_kernel<T, V, true>;
  }
  return backward_wave_kernel<T, V, false>;
}
template <class T, int V>
Kernel row_kernel(const Problem& p, const Config& config) {
  if constexpr (sizeof(T) == 2) {
    if (p.has_weight && p.weight != p.x) {
      return config.stages > 1 ? backward_row_kernel<T, V, true, true>
                               : backward_row_kernel<T, V, false, true>;
    }
  }
  return config.stages > 1 ? backward_row_kernel<T, V, true, false>
                           : backward_row_kernel<T, V, false, false>;
}

template <class T>
hipError_t launch_rows(Kernel kernel, const BackwardArgs& args, const Launch& launch) {
  const Grid grid = {.blocks = launch.plan.groups,
                     .threads = launch.plan.threads,
                     .lds_bytes = static_cast<std::size_t>(launch.plan.lds_bytes),
                     .stream = static_cast<hipStream_t>(launch.stream)};
  const hipError_t error = launch_kernel(kernel, grid, backward_row_args<T>(args, launch));
  if (error != hipSuccess || !launch.problem.grads.columns()) return error;
  return reduce_parts<T>(args, launch);
}

}  // namespace

template <class T>
hipError_t backward_wave(const BackwardArgs& args, const Launch& launch) {
  return with_vectors<T, kBackwardWave>(launch.plan.vectors, [&]<int V>() {
    return launch_rows<T>(wave_kernel<T, V>(launch.problem), args, launch);
  });
}
template <class T>
hipError_t backward_row(const BackwardArgs& args, const Launch& launch) {
  return with_vectors<T, kBackwardRow>(launch.plan.vectors, [&]<int V>() {
    return launch_rows<T>(row_kernel<T, V>(launch.problem, launch.config), args, launch);
  });
}

template <class T>
int backward_wave_resident(const Config&, const Plan& plan, const Problem& problem,
                           const Device& device) {
  int blocks = 0;
  (void)with_vectors<T, kBackwardWave>(plan.vectors, [&]<int V>() {
    blocks = resident_clusters(wave_kernel<T, V>(problem), device, plan.threads,
                               static_cast<std::size_t>(plan.lds_bytes));
    return hipSuccess;
  });
  return blocks;
}
template <class T>
int backward_row_resident(const Config& config, const Plan& plan, const Problem& problem,
                          const Device& device) {
  int blocks = 0;
  (void)with_vectors<T, kBackwardRow>(plan.vectors, [&]<int V>() {
    blocks = resident_clusters(row_kernel<T, V>(problem, config), device, plan.threads,
                               static_cast<std::size_t>(plan.lds_bytes));
    return hipSuccess;
  });
  return blocks;
}

template hipError_t backward_wave<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template hipError_t backward_row<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template int backward_wave_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                     const Device&);
template int backward_row_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                    const Device&);

}  // namespace hipnorm::gpu
