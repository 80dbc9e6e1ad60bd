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

// Whole: RowShape. Wide: f32 weights of 16-bit rows.
enum class RowsAre { any, whole, whole_wide };

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

// kAhead: the loads of the group's next row are under way before this one is done: where x − mean
// is kept, from the second sum on; else from the first sum on for the first kNext packets, which
// have registers of their own, and for the others as soon as this row is done with them.
template <class T, int V, bool kBlock, bool kAhead, RowsAre kRows>
__device__ __forceinline__ void forward_rows(const ForwardRowArgs& args) {
  using A = accumulate_t<T>;
  constexpr bool kWhole = kRows != RowsAre::any;
  // AMD: 16 packets in 256 registers leave room for one of the next row, and of the parameters.
  constexpr int kMost = V > 8 ? kMostOfSixteen : 4;
  constexpr int E = kElements<T>;
  // Whether x − mean stays in registers from the second sum on: not where it takes twice those of
  // x, or the next row comes into as many others.
  constexpr bool kKept = kWhole && V <= (sizeof(T) == 2 ? 4 : kAhead ? 8 : 16);
  constexpr int kNext = !kAhead || kKept ? 0 : V < kMost ? V : kMost;
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
      if constexpr (!kKept) {
        next_first = first_of(a, r + step);
        const RowReader following =
            reader_of_row(a, r + step, shape_of_row<T, kWhole>(a, r + step));
#pragma unroll
        for (int v = 0; v < kNext; ++v) next[v] = following.load_whole(v * lanes + lane);
      }
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

    using Parameters = std::conditional_t<kRows == RowsAre::any, ParameterPackets<T>,
                                          WholeParameterPackets<T, kRows == RowsAre::whole_wide>>;
    Parameters weight[kRequested], bias[kRequested];
    const auto request_parameters = [&] {
#pragma unroll
      for (int v = 0; v < kRequested; ++v) {
        weight[v].request(a.weight, 1, v * lanes + lane, shape);
        bias[v].request(a.bias, 0, v * lanes + lane, shape);
      }
    };
    if (kAtOnce) request_parameters();

    // Four chains: roundings of 16-bit elements repeat, and a chain should be short.
    A s[4] = {};
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      A values[E];
#pragma unroll
      for (int i = 0; i < E; ++i) values[i] = element<T>(x[v], i);
      if constexpr (kWhole) {  // absent packets are zero
        s[v % 4] += sum_about<T>(values, shape.full.has(v * lanes + lane) ? first : 0);
      } else {
#pragma unroll
        for (int i = 0; i < E; ++i) values[i] -= first;
        shape.mask(values, v * lanes + lane);
#pragma unroll
        for (int i = 0; i < E; ++i) s[i % 4] += values[i];
      }
    }
    const A sum = group.sum((s[0] + s[1]) + (s[2] + s[3]));
    const auto over_cols = [&a](A total) {
      const A cols = static_cast<A>(a.cols);
      if (!kQuick) return total / cols;
      return Divisor<A>(cols, static_cast<A>(a.reciprocal_cols)).divide(total);
    };
    Mean<A> mean = mean_at(first, over_cols(sum));

    // Around the rounded mean: what rounding took from it is subtracted from the variance.
    A q[4] = {}, kept[kKept ? V : 1][E];
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (V > 1) forget_unpacked(x[v]);
      A(&d)[E] = kept[kKept ? v : 0];
      // Absent packets are zero.
      const A centre = kWhole && !shape.full.has(v * lanes + lane) ? 0 : mean.high;
#pragma unroll
      for (int i = 0; i < E; ++i) d[i] = element<T>(x[v], i) - centre;
      if (!kWhole) shape.mask(d, v * lanes + lane);
#pragma unroll
      for (int i = 0; i < E; ++i) q[i % 4] = fused(d[i], d[i], q[i % 4]);
    }
    if constexpr (kAhead && kKept) {
      next_first = first_of(a, r + step);
      const RowReader following = reader_of_row(a, r + step, shape_of_row<T, kWhole>(a, r + step));
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = following.load_whole(v * lanes + lane);
    }
    if (!kAtOnce) request_parameters();
    const A squares = group.sum((q[0] + q[1]) + (q[2] + q[3]));

    A rstd = 0;
    const bool extreme =
        shape.cols > 0 && (!is_finite(sum) || scale_of_squares(squares, a.eps) != A{1});
    // Where rows of a wave differ, all its lanes take part in the sums of those that are extreme.
    if (kBlock ? extreme : wave_any(extreme)) {
      const auto row = statistics_of_extreme_row<T>(
          reinterpret_cast<const T*>(a.x.row(r)), extreme ? a.cols : 0, group.lane, group.lanes,
          a.eps, [&](A value) { return group.sum(value); });
      if (extreme) {
        mean = row.mean;
        rstd = row.rstd;
      }
    }
    if (!extreme) {
      const A variance = over_cols(squares) - mean.low * mean.low + static_cast<A>(a.eps);
      rstd = kQuick ? reciprocal_root(variance) : A{1} / sqrt(variance);
    }
    if (shape.cols > 0 && group.lane == 0) {
      static_cast<A*>(a.mean)[r] = mean.high;
      static_cast<A*>(a.rstd)[r] = rstd;
    }

    const RowScale<A> normalise = scale_of(mean, rstd);
    char* y = a.y + (r * a.cols - shape.shift) * static_cast<std::int64_t>(sizeof(T));
    if (kKept && extreme) {  // around another mean
      const RowReader again = reader_of_row(a, r, shape);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        Packet packet = again.load_whole(v * lanes + lane);
        again.load_rest(packet, v * lanes + lane, shape);
#pragma unroll
        for (int i = 0; i < E; ++i) kept[v][i] = element<T>(packet, i) - normalise.mean;
      }
    }
    if (kNext < V && kAhead && !kKept) {
      reader = reader_of_row(a, r + step, shape_of_row<T, kWhole>(a, r + step));
    }
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (V > 1 && !kKept) forget_unpacked(x[v]);
      A w[E], b[E], out[E];
      weight[v % kRequested].take(a.weight, w);
      bias[v % kRequested].take(a.bias, b);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const A d = kKept ? kept[kKept ? v : 0][i] : element<T>(x[v], i) - normalise.mean;
        out[i] = fused(fused(d, normalise.rstd, normalise.rest), w[i], b[i]);
      }
      if (v + kRequested < V) {
        const int ahead = (v + kRequested) * lanes + lane;
        weight[v % kRequested].request(a.weight, 1, ahead, shape);
        bias[v % kRequested].request(a.bias, 0, ahead, shape);
      }
      shape.store(y, v * lanes + lane, pack<T>(out));
      if (kAhead && !kKept && v >= kNext) x[v] = reader.load_whole(v * lanes + lane);
    }
  }
}

// Blocks of a multiprocessor that registers have to do for. Two of 512 threads are 64 registers
// instead of 80, and a third more rows under way in the smaller blocks that are launched. Without a
// number ptxas sometimes wants two, and spills for it.
template <class T, int V, bool kBlock, bool kAhead, RowsAre kRows>
constexpr int least_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900  // sm_80 would spill
  if (sizeof(T) <= 4 && V == (kBlock ? 4 : 3) && !kAhead && kRows == RowsAre::whole) return 2;
#endif
  return 1;
}
template <class T, int V, RowsAre kRows>
__global__ void __launch_bounds__(launch_bound(kForwardWave, V),
                                  (least_blocks<T, V, false, false, kRows>()))
    forward_wave_kernel(ForwardRowArgs args) {
  forward_rows<T, V, false, false, kRows>(args);
}
template <class T, int V, bool kAhead, RowsAre kRows>
__global__ void __launch_bounds__(launch_bound(kForwardRow, V),
                                  (least_blocks<T, V, true, kAhead, kRows>()))
    forward_row_kernel(ForwardRowArgs args) {
  forward_rows<T, V, true, kAhead, kRows>(args);
}

using ForwardRowKernel = void (*)(ForwardRowArgs);

template <class T, int V>
ForwardRowKernel forward_wave_kernel_for(RowsAre rows) {
  if constexpr (sizeof(T) == 2) {
    if (rows == RowsAre::whole_wide) return forward_wave_kernel<T, V, RowsAre::whole_wide>;
  }
  return rows == RowsAre::any ? forward_wave_kernel<T, V, RowsAre::any>
                              : forward_wave_kernel<T, V, RowsAre::whole>;
}
// With the next row under way: for wide weights there is no kernel of its own, and AMD has
// forward_packets for whole packets.
#if defined(__CUDACC__) || (defined(HIPNORM_EMULATED) && HIPNORM_EMULATED_WAVE == 32)
inline constexpr bool kWholeAhead = true;
#else
inline constexpr bool kWholeAhead = false;
#endif
template <class T, int V, bool kAhead>
ForwardRowKernel forward_row_kernel_for(RowsAre rows) {
  if constexpr (!kAhead && sizeof(T) == 2) {
    if (rows == RowsAre::whole_wide) return forward_row_kernel<T, V, kAhead, RowsAre::whole_wide>;
  }
  if constexpr (!kAhead || kWholeAhead) {
    if (rows == RowsAre::whole) return forward_row_kernel<T, V, kAhead, RowsAre::whole>;
  }
  return forward_row_kernel<T, V, kAhead, RowsAre::any>;
}

RowsAre rows_are(const Problem& problem) {
  if (!whole_packets(problem)) return RowsAre::any;
  return problem.weight == problem.x ? RowsAre::whole : RowsAre::whole_wide;
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
    return launch_kernel(forward_wave_kernel_for<T, V>(rows_are(launch.problem)),
                         grid_of(launch, 0), a);
  });
}

template <class T>
hipError_t forward_row(const ForwardArgs& args, const Launch& launch) {
  return with_vectors<T, kForwardRow>(launch.plan.vectors, [&]<int V>() {
    const ForwardRowArgs a = kernel_args<T>(args, launch);
    const RowsAre rows = rows_are(launch.problem);
    const auto kernel = launch.config.stages > 1 ? forward_row_kernel_for<T, V, true>(rows)
                                                 : forward_row_kernel_for<T, V, false>(rows);
    return launch_kernel(kernel, grid_of(launch, kRowLdsBytes), a);
  });
}

template <class T>
int forward_row_resident(const Config& config, const Plan& plan, const Problem& problem,
                         const Device& device) {
  int blocks = 0;
  (void)with_vectors<T, kForwardRow>(plan.vectors, [&]<int V>() {
    const RowsAre rows = rows_are(problem);
    const auto kernel = config.stages > 1 ? forward_row_kernel_for<T, V, true>(rows)
                                          : forward_row_kernel_for<T, V, false>(rows);
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
