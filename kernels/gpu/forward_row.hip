// forward_wave and forward_row: a row in the registers of part of a wave, a wave, or a block.
#include <bit>

#include "kernels/gpu/group.h"
#include "kernels/gpu/instance_of.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/prepare.h"
#include "kernels/gpu/row.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {
namespace {

struct ForwardRowArgs {
  Rows x;
  char* y;
  Parameter weight;
  Parameter bias;
  void* mean;
  void* rstd;
  std::int64_t rows;
  int cols;
  int lanes_log2;          // of a row's lanes, where they are part of a wave
  double reciprocal_cols;  // rounded to the type that is summed in
  double eps;
};

// How many packets of weight and bias are requested before the second sum, and from then on ahead
// of their use. AMD: a wait for one load waits for all older ones and for stores, too, so all
// should precede the apply loop's.
#if defined(__CUDACC__)
inline constexpr int kParametersAhead = 1, kMostOfSixteen = 4;
#else
inline constexpr int kParametersAhead = 4, kMostOfSixteen = 1;
#endif

template <class T, bool kWhole>
__device__ __forceinline__ RowShape<T, kWhole> shape_of_row(const ForwardRowArgs& a,
                                                            std::int64_t r) {
  if (r >= a.rows) return {};
  if (kWhole) return {0, a.cols};
  return {shift_of<T>(a.y + r * a.cols * static_cast<std::int64_t>(sizeof(T))), a.cols};
}
// Of row r of x, of that shape: made where it is used, being cheaper to form than to keep.
template <class T, bool kWhole>
__device__ __forceinline__ RowReader reader_of_row(const ForwardRowArgs& a, std::int64_t r,
                                                   const RowShape<T, kWhole>& shape) {
  return r < a.rows ? reader_of<T>(a.x, a.x.row(r), shape) : RowReader{};
}

// kAhead: the loads of the group's next row are under way across the sums of this one; of its first
// kNext packets into registers of their own, of the others in place, as soon as this row is done
// with them. kWhole: RowShape.
template <class T, int V, bool kBlock, bool kAhead, bool kWhole>
__device__ __forceinline__ void forward_rows(const ForwardRowArgs& args) {
  using A = accumulate_t<T>;
  // AMD: 16 packets in 256 registers leave room for one of the next row, and of the parameters.
  constexpr int kMost = V > 8 ? kMostOfSixteen : 4;
  constexpr int E = kElements<T>, kNext = !kAhead ? 0 : V < kMost ? V : kMost;
  // No divisions, 200 cycles each. Where registers are short the branches in them are needed: in
  // one straight piece of code ptxas unpacks all packets at once, and spills.
  constexpr bool kQuick = kWhole && V <= 8;
  // Short rows are all latency: their parameters are requested with the row.
  constexpr bool kAtOnce = kWhole && V <= (kBlock ? 2 : 1);
  // Parameters under way before the second sum: of how many packets.
  constexpr int kAsked = kParametersAhead < kMost ? kParametersAhead : kMost;
  constexpr int kRequested = kAtOnce ? V : kAsked < V ? kAsked : V;
  typename GroupOf<T, kBlock>::type group(args.lanes_log2);

  const int lanes = group.lanes;
  const std::int64_t step = std::int64_t{gridDim.x} * group.count;
  const auto first_of = [](const ForwardRowArgs& a, std::int64_t r) {
    return r < a.rows ? to_accumulate(*reinterpret_cast<const T*>(a.x.row(r))) : A{0};
  };
  Packet x[V], next[kNext > 0 ? kNext : 1];
  A next_first = 0;
  std::int64_t block_row = std::int64_t{blockIdx.x} * group.count;
  if (kAhead) {
    const std::int64_t r = block_row + group.index;
    const RowReader reader = reader_of_row(args, r, shape_of_row<T, kWhole>(args, r));
    next_first = first_of(args, r);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      (v < kNext ? next[v] : x[v]) = reader.load_whole(v * lanes + group.lane);
    }
  }

  for (; block_row < args.rows; block_row += step) {
    const ForwardRowArgs& a = reread(args);
    const std::int64_t r = block_row + group.index;
    const auto shape = shape_of_row<T, kWhole>(a, r);
    RowReader reader = reader_of_row(a, r, shape);
    const bool rest = shape.cols > 0 && reader.has_rest(shape);
    A first;
    int lane = group.lane;
    forget(lane);
    if (kAhead) {
      first = next_first;
#pragma unroll
      for (int v = 0; v < kNext; ++v) x[v] = next[v];
      next_first = first_of(a, r + step);
      const RowReader following = reader_of_row(a, r + step, shape_of_row<T, kWhole>(a, r + step));
#pragma unroll
      for (int v = 0; v < kNext; ++v) next[v] = following.load_whole(v * lanes + lane);
    } else {
      first = first_of(a, r);
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = reader.load_whole(v * lanes + lane);
    }
    if (rest) {
      forget(lane);
#pragma unroll
      for (int v = 0; v < V; ++v) reader.load_rest(x[v], v * lanes + lane, shape);
    }

    ParameterPackets<T> weight[kRequested], bias[kRequested];
    const auto request_parameters = [&] {
#pragma unroll
      for (int v = 0; v < kRequested; ++v) {
        weight[v].request(a.weight, from_accumulate<T>(1), v * lanes + lane, shape);
        bias[v].request(a.bias, from_accumulate<T>(0), v * lanes + lane, shape);
      }
    };
    if (kAtOnce) request_parameters();

    // Four chains: roundings of 16-bit elements repeat, and a chain should be short.
    A s[4] = {};
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      A d[E];
#pragma unroll
      for (int i = 0; i < E; ++i) d[i] = element<T>(x[v], i) - first;
      shape.mask(d, v * lanes + lane);
#pragma unroll
      for (int i = 0; i < E; ++i) s[i % 4] += d[i];
    }
    const A sum = group.sum((s[0] + s[1]) + (s[2] + s[3]));
    const auto over_cols = [&a](A total) {
      const A cols = static_cast<A>(a.cols);
      if (!kQuick) return total / cols;
      return Divisor<A>(cols, static_cast<A>(a.reciprocal_cols)).divide(total);
    };
    Mean<A> mean = mean_at(first, over_cols(sum));

    A q[4] = {};
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (V > 1) forget_unpacked(x[v]);
      A d[E];
#pragma unroll
      for (int i = 0; i < E; ++i) d[i] = mean.centred(element<T>(x[v], i));
      shape.mask(d, v * lanes + lane);
#pragma unroll
      for (int i = 0; i < E; ++i) q[i % 4] += d[i] * d[i];
    }
    if (!kAtOnce) request_parameters();
    const A squares = group.sum((q[0] + q[1]) + (q[2] + q[3]));

    A scale = 1, rstd = 0;
    const bool extreme =
        shape.cols > 0 && (!is_finite(sum) || needs_scaling(squares, a.eps, scale));
    // Where rows of a wave differ, all its lanes take part in the sums of those that are extreme.
    if (kBlock ? extreme : wave_any(extreme)) {
      Mean<A> extreme_mean = mean;
      const A extreme_rstd = rstd_of_extreme_row<T>(
          reinterpret_cast<const T*>(a.x.row(r)), extreme ? a.cols : 0, group.lane, group.lanes,
          a.eps, sum, squares, extreme_mean, [&](A value) { return group.sum(value); });
      if (extreme) {
        mean = extreme_mean;
        rstd = extreme_rstd;
      }
    }
    if (!extreme) {
      const A variance = over_cols(squares) + static_cast<A>(a.eps);
      rstd = kQuick ? reciprocal_root(variance) : A{1} / sqrt(variance);
    }
    if (shape.cols > 0 && group.lane == 0) {
      static_cast<A*>(a.mean)[r] = mean.high;
      static_cast<A*>(a.rstd)[r] = rstd;
    }

    const RowScale<A> normalise = scale_of(mean, rstd);
    char* y = a.y + (r * a.cols - shape.shift) * static_cast<std::int64_t>(sizeof(T));
    if (kNext < V && kAhead) {
      reader = reader_of_row(a, r + step, shape_of_row<T, kWhole>(a, r + step));
    }
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (V > 1) forget_unpacked(x[v]);
      A w[E], b[E], out[E];
      weight[v % kRequested].take(a.weight, w);
      bias[v % kRequested].take(a.bias, b);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        out[i] = normalise.normalised(element<T>(x[v], i)) * w[i] + b[i];
      }
      if (v + kRequested < V) {
        const int ahead = (v + kRequested) * lanes + lane;
        weight[v % kRequested].request(a.weight, from_accumulate<T>(1), ahead, shape);
        bias[v % kRequested].request(a.bias, from_accumulate<T>(0), ahead, shape);
      }
      shape.store(y, v * lanes + lane, pack<T>(out));
      if (kAhead && v >= kNext) x[v] = reader.load_whole(v * lanes + lane);
    }
  }
}

template <class T, int V, bool kWhole>
__global__ void __launch_bounds__(launch_bound(kForwardWave, V))
    forward_wave_kernel(ForwardRowArgs args) {
  forward_rows<T, V, false, false, kWhole>(args);
}
// Without the 1, ptxas sometimes wants two blocks on a multiprocessor, and spills for it.
template <class T, int V, bool kAhead, bool kWhole>
__global__ void __launch_bounds__(launch_bound(kForwardRow, V), 1)
    forward_row_kernel(ForwardRowArgs args) {
  forward_rows<T, V, true, kAhead, kWhole>(args);
}

template <class T>
ForwardRowArgs kernel_args(const ForwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const bool wide = p.weight != p.x;
  return {
      .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
      .y = static_cast<char*>(args.y),
      .weight = {args.weight, wide},
      .bias = {args.bias, wide},
      .mean = args.mean,
      .rstd = args.rstd,
      .rows = p.rows,
      .cols = static_cast<int>(p.cols),
      .lanes_log2 = launch.config.rows_per_block > 0
                        ? std::countr_zero(static_cast<unsigned>(launch.plan.threads /
                                                                 launch.config.rows_per_block))
                        : 0,
      .reciprocal_cols = 1 / static_cast<accumulate_t<T>>(p.cols),
      .eps = args.eps,
  };
}

Grid grid_of(const Launch& launch, std::int64_t lds_bytes) {
  return {.blocks = launch.plan.tasks,
          .threads = launch.plan.threads,
          .lds_bytes = static_cast<std::size_t>(lds_bytes),
          .stream = static_cast<hipStream_t>(launch.stream)};
}

}  // namespace

template <class T>
hipError_t forward_wave(const ForwardArgs& args, const Launch& launch) {
  return with_vectors<T, kForwardWave>(launch.plan.vectors, [&]<int V>() {
    const ForwardRowArgs a = kernel_args<T>(args, launch);
    const auto kernel = whole_packets(launch.problem) ? forward_wave_kernel<T, V, true>
                                                      : forward_wave_kernel<T, V, false>;
    return launch_kernel(kernel, grid_of(launch, 0), a);
  });
}

template <class T>
hipError_t forward_row(const ForwardArgs& args, const Launch& launch) {
  return with_vectors<T, kForwardRow>(launch.plan.vectors, [&]<int V>() {
    const ForwardRowArgs a = kernel_args<T>(args, launch);
    const bool whole = whole_packets(launch.problem);
    const auto kernel = launch.config.stages > 1 ? whole ? forward_row_kernel<T, V, true, true>
                                                         : forward_row_kernel<T, V, true, false>
                        : whole                  ? forward_row_kernel<T, V, false, true>
                                                 : forward_row_kernel<T, V, false, false>;
    return launch_kernel(kernel, grid_of(launch, kRowLdsBytes), a);
  });
}

template <class T>
int forward_row_resident(const Config& config, const Plan& plan, const Problem&,
                         const Device& device) {
  int blocks = 0;
  (void)with_vectors<T, kForwardRow>(plan.vectors, [&]<int V>() {
    const auto kernel = config.stages > 1 ? forward_row_kernel<T, V, true, false>
                                          : forward_row_kernel<T, V, false, false>;
    blocks =
        resident_clusters(kernel, device, plan.threads, static_cast<std::size_t>(plan.lds_bytes));
    return hipSuccess;
  });
  return blocks;
}

template hipError_t forward_wave<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);
template hipError_t forward_row<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);
template int forward_row_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                   const Device&);

}  // namespace hipnorm::gpu
