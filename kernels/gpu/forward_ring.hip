// forward_ring: by persistent groups whose rows pass through a ring in LDS (ring.h), one exchange a
// row.
//
// First phase: a wave's part of Σ(x − x₀), and the squares of its elements around their own mean,
// which it posts. The finisher combines those of all waves (Chan, Golub, LeVeque 1983, "Algorithms
// for Computing the Sample Variance", eq. 2.1), in the same order in every block. Second phase: y.
#include <cmath>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/ring_lanes.h"
#include "kernels/gpu/ring_loader.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {

#if HIPNORM_BULK_COPIES
namespace {

struct ForwardRingArgs {
  Ring ring;
  Rows x;
  Parameter weight, bias;
  float* mean;
  float* rstd;
  double eps;
};

// (Unused where a target without bulk copies leaves the kernels empty.)
[[maybe_unused]] __device__ __forceinline__ float all_lanes_sum(float value) {
  float values[1] = {value};
  return wave_sums(values);
}

template <class T>
struct ForwardFinisher {
  const ForwardRingArgs& a;
  const Block<T>& block;
  const Divisor<float> cols;
  const float eps;

  __device__ __forceinline__ ForwardFinisher(const ForwardRingArgs& args, const Block<T>& of)
      : a(args),
        block(of),
        cols(static_cast<float>(args.ring.cols)),
        eps(static_cast<float>(args.eps)) {}

  // From what all waves of the cluster have posted for row k of the group to its result.
  __device__ __forceinline__ void finish(int k, const Turn& turn) const {
    const Ring& ring = a.ring;
    const int lane = static_cast<int>(threadIdx.x) % kWave, stage = turn.stage(ring);
    const std::int64_t r = block.row(k);
    const Lds<Pair> posted =
        block.memory.template at<Pair>(ring.slots + turn.slot * ring.slot_bytes);
    const Lds<Pair> counts = block.memory.template at<Pair>(ring.counts);
    const int waves = ring.split * ring.waves;
    const float first = block.values(stage)->a;

    float sum = 0;
#pragma unroll 2
    for (int w = lane; w < waves; w += kWave) sum += posted[w].a;
    sum = all_lanes_sum(sum);
    const float shifted = cols.divide(sum);  // mean − x₀
    Mean<float> mean = mean_at(first, shifted);
    float squares = 0;
#pragma unroll 2
    for (int w = lane; w < waves; w += kWave) {
      const Pair part = posted[w];
      const Divisor<float> count(counts[w].a, counts[w].b);
      const float difference = count.divide(part.a) - shifted;
      squares += fmaf(count.value * difference, difference, part.b);
    }
    squares = all_lanes_sum(squares);

    const float scale = scale_of_squares(squares, a.eps);
    float rstd;
    if (is_finite(sum) && scale == 1) {
      rstd = reciprocal_root(cols.divide(squares) + eps);
    } else if (is_finite(sum)) {
      rstd = rstd_of(scaled_squares(r, mean, scale), cols.value, scale, a.eps);
    } else {
      float unusual = 0;
#pragma unroll 1
      for (int w = lane; w < waves; w += kWave) unusual += posted[w].a == posted[w].a ? 0 : 1;
      // Unless an element is not finite itself the variance overflows.
      rstd = all_lanes_sum(unusual) > 0 ? sum - sum : 0;
      mean = {first + rstd, 0};
    }
    if (lane == 0) {
      const RowScale<float> row = scale_of(mean, rstd);
      *block.result(stage) = {{row.mean, row.rstd, row.rest, 0}};
      if (block.slice.rank == 0) {
        a.mean[r] = mean.high;
        a.rstd[r] = rstd;
      }
    }
  }

  // Σ((x − mean)·scale)² of a row whose squares f32 cannot hold, read again from memory.
  __device__ __forceinline__ float scaled_squares(std::int64_t r, const Mean<float>& mean,
                                                  float scale) const {
    const T* row = reinterpret_cast<const T*>(a.x.row(r));
    float sum = 0;
#pragma unroll 8
    for (int c = static_cast<int>(threadIdx.x) % kWave; c < a.ring.cols; c += kWave) {
      const float d = mean.centred(to_accumulate(row[c])) * scale;
      sum = fmaf(d, d, sum);
    }
    return all_lanes_sum(sum);
  }
};

// A computing lane.
template <class T, int V, bool kPacked>
class ForwardLane {
  static constexpr int E = kElements<T>;
  static constexpr int N = V <= 4 ? V : 2;  // packets read at once, second phase
  static constexpr bool kStraight = LaneChunks<T, V>::kStraight;

 public:
  __device__ __forceinline__ ForwardLane(const ForwardRingArgs& args, const Block<T>& block)
      : a_(args),
        block_(block),
        chunks_(block),
        out_(first_output(block, chunks_)),
        x_(block, args.x, args.ring.line_step[0]) {}

  // Before the waves meet.
  __device__ __forceinline__ void start() {
    load_parameters(block_, chunks_, a_.weight, 1.0f, weight_);
    load_parameters(block_, chunks_, a_.bias, 0.0f, bias_);
    const int waves = a_.ring.split * a_.ring.waves;
    for (int w = static_cast<int>(threadIdx.x); w < waves; w += a_.ring.waves * kWave) {
      const Divisor<float> count(static_cast<float>(elements_of(w)));
      block_.memory.template at<Pair>(a_.ring.counts)[w] = {count.value, count.reciprocal};
    }
  }

  // Sums row k of the group and posts what this wave found to every block of the cluster.
  __device__ __forceinline__ void sum(int k, const Turn& turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(block_.full(stage), turn.stage_parity(ring));
    const float row_first = block_.values(stage)->a;
    const int at[1] = {stage * ring.row_bytes + x_.of(k)};
    Packet packets[1][V];
    if (kStraight && chunks_.whole && is_aligned(at)) {
      read_packets<T, kStraight, false>(block_, chunks_, at, 0, packets);
    } else {
      read_packets<T, false, false>(block_, chunks_, at, 0, packets);
    }
    float x[V][E], s[2] = {};
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int i = 0; i < E; ++i) x[j][i] = element<T>(packets[0][j], i);
    }
    if (chunks_.partial) replace_outside(x, row_first);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      s[j % 2] += sum_about<T>(x[j], chunks_.exists(block_, j) ? row_first : 0);
    }
    float sum = all_lanes_sum(s[0] + s[1]);
    if (!is_finite(sum)) sum = extreme_sum(at, row_first);

    // From LDS, not from two registers over the whole loop: three packets a lane leave none.
    const Pair count = block_.memory.template at<Pair>(ring.counts)[wave()];
    const Mean<float> mean = mean_at(row_first, Divisor<float>(count.a, count.b).divide(sum));
    if (chunks_.partial) replace_outside(x, mean.high);
    // What rounding takes from the mean, squared, is not part of the variance. (Where its square is
    // beyond f32 the others' are, too, and Inf − Inf would be NaN.)
    const float lost = fminf(count.a * mean.low * mean.low, Extremes<float>::kMax);
    float q[2] = {chunks_.lane() == 0 ? -lost : 0, 0};
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float centre = chunks_.exists(block_, j) ? mean.high : 0;
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float centred = x[j][i] - centre;
        q[i % 2] = fmaf(centred, centred, q[i % 2]);
      }
    }
    const float squares = all_lanes_sum(q[0] + q[1]);
    const int lane = static_cast<int>(chunks_.lane());
    if (lane < ring.split) {
      const Lds<Pair> place =
          block_.memory.template at<Pair>(ring.slots + turn.slot * ring.slot_bytes) + wave();
      const Lds<AsyncBarrier> barrier = block_.sums(turn.slot);
      if (ring.split > 1) {
        post(remote(place, lane), Pair{sum, squares}, remote(barrier, lane));
      } else {
        *place = {sum, squares};
        barrier_arrive(barrier);
      }
    }
  }

  // Writes row k of the group.
  __device__ __forceinline__ void apply(int k, const Turn& turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(block_.ready(stage), turn.stage_parity(ring));
    const RowResult result = *block_.result(stage);
    const int at[1] = {stage * ring.row_bytes + x_.of(k)};
    if (kStraight && chunks_.whole && is_aligned(at)) {
      apply_row<kStraight>(at, result);
    } else {
      apply_row<false>(at, result);
    }
    out_ += ring.out_step;
  }

 private:
  template <bool kQuick>
  __device__ __forceinline__ void apply_row(const int (&at)[1], const RowResult& result) {
    const RowScale<float> scale = {result.value[0], result.value[1], result.value[2]};
#pragma unroll
    for (int first = 0; first < V; first += N) {
      Packet packets[1][N], out[N];
      read_packets<T, kQuick, false>(block_, chunks_, at, first, packets);
#pragma unroll
      for (int j = first; j < first + N && j < V; ++j) {
        // Registers are short by half a packet; unpacking again costs time (6 % if all were).
        if (j >= 3) {
          weight_.stay_packed(j);
          bias_.stay_packed(j);
        }
        float y[E];
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const float normal =
              fmaf(element<T>(packets[0][j - first], i) - scale.mean, scale.rstd, scale.rest);
          y[i] = fmaf(normal, weight_.get(j, i), bias_.get(j, i));
        }
        out[j - first] = pack<T>(y);
      }
      write_packets<T, kQuick>(block_, chunks_, out_, first, out);
    }
  }

  // Of the cluster.
  __device__ __forceinline__ int wave() const {
    return block_.slice.rank * a_.ring.waves + static_cast<int>(chunks_.wave());
  }
  // Elements of a row that wave w of the cluster sums.
  __device__ __forceinline__ int elements_of(int w) const {
    const Ring& ring = a_.ring;
    const int rank = w / ring.waves;
    const int begin = (w - rank * ring.waves) * (kWave * V), end = begin + kWave * V;
    const auto within = [&](int v) {
      return rank * ring.slice + (v < ring.slice ? v : ring.slice);
    };
    return block_.columns_before(within(end)) - block_.columns_before(within(begin));
  }

  __device__ __forceinline__ void replace_outside(float (&values)[V][E], float by) const {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const Chunk c = chunks_.of(block_, j);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        if (chunks_.exists(block_, j) && !c.holds(i)) values[j][i] = by;
      }
    }
  }

  // What a wave posts where its sum is not finite: NaN if one of its elements is not, else
  // Σ(x − x₀) by single elements, which may be Inf. (x₀ may have made it so, and then its own wave
  // says NaN.)
  __device__ __forceinline__ float extreme_sum(const int (&at)[1], float row_first) const {
    float unusual = 0, sum = 0;
#pragma unroll 1
    for (int j = 0; j < V; ++j) {
      Packet packets[1][1];
      read_packets<T, false, true>(block_, chunks_, at, j, packets);
      const Chunk c = chunks_.of(block_, j);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float x = element<T>(packets[0][0], i);
        unusual += is_finite(x) ? 0 : 1;
        if (chunks_.exists(block_, j) && c.holds(i)) sum += x - row_first;
      }
    }
    const float infinity = 2 * Extremes<float>::kMax;
    sum = all_lanes_sum(sum);
    if (all_lanes_sum(unusual) > 0) return infinity - infinity;
    return is_finite(sum) ? sum : infinity;
  }

  const ForwardRingArgs& a_;
  const Block<T>& block_;
  const LaneChunks<T, V> chunks_;
  char* out_;  // chunk 0 of the row that is written next
  const LinePlace x_;
  Parameters<T, kPacked, V> weight_, bias_;
};

template <class T, int V, bool kPacked>
__device__ __forceinline__ void forward(const ForwardRingArgs& args) {
  const Ring& ring = args.ring;
  const Block<T> block(ring);
  const int wave = static_cast<int>(threadIdx.x) / kWave;
  const auto first_of = [&](std::int64_t row) {
    return Pair{to_accumulate(*reinterpret_cast<const T*>(args.x.row(row))), 0};
  };
  Loader<T, 1, 1, decltype(first_of)> loader(block, args.x, args.x, first_of);
  ForwardLane<T, V, kPacked> lane(args, block);
  if (wave < ring.waves) lane.start();
  if (wave == ring.waves) loader.start();
  block.meet();

  if (wave == ring.waves) {
    loader.run();
    return;
  }
  if (wave > ring.waves) {
    const ForwardFinisher<T> finisher(args, block);
    run_finisher<T, 1>(block, ring.split * ring.waves * static_cast<int>(sizeof(Pair)),
                       [&](int step, const Turn& turn) { finisher.finish(step, turn); });
    return;
  }
  run_computing_wave<T, 1>(
      block, true, [&](int step, const Turn& turn) { lane.sum(step, turn); },
      [&](int step, const Turn& turn) { lane.apply(step, turn); });
}

// Without the 1, ptxas sometimes wants two blocks on a multiprocessor, and spills for it.
template <class T, int V, bool kPacked, int kThreads>
__global__ void __launch_bounds__(kThreads + kRingServants * kWave, 1)
    forward_ring_kernel(ForwardRingArgs args) {
  if constexpr (kBulkCopies) forward<T, V, kPacked>(args);
}

using ForwardRingKernel = void (*)(ForwardRingArgs);

template <class T, int V, bool kPacked, const auto& kInstances>
constexpr ForwardRingKernel instance() {
  return forward_ring_kernel<T, V, kPacked, max_threads(kInstances, V)>;
}

// Null: there is none.
template <class T>
ForwardRingKernel forward_ring_kernel_for(const Problem& problem, int vectors) {
  if constexpr (sizeof(T) == 4) {
    switch (vectors) {
      case 1: return instance<T, 1, false, kForwardRingF32>();
      case 2: return instance<T, 2, false, kForwardRingF32>();
      case 3: return instance<T, 3, false, kForwardRingF32>();
      case 4: return instance<T, 4, false, kForwardRingF32>();
      case 8: return instance<T, 8, false, kForwardRingF32>();
      default: return nullptr;
    }
  } else if (problem.weight == DType::f32) {
    switch (vectors) {
      case 1: return instance<T, 1, false, kForwardRingWide>();
      case 2: return instance<T, 2, false, kForwardRingWide>();
      case 3: return instance<T, 3, false, kForwardRingWide>();
      case 4: return instance<T, 4, false, kForwardRingWide>();
      default: return nullptr;
    }
  } else {
    switch (vectors) {
      case 1: return instance<T, 1, true, kForwardRing>();
      case 2: return instance<T, 2, true, kForwardRing>();
      case 3: return instance<T, 3, true, kForwardRing>();
      case 4: return instance<T, 4, true, kForwardRing>();
      default: return nullptr;
    }
  }
}

}  // namespace
#endif

template <class T>
hipError_t forward_ring(const ForwardArgs& args, const Launch& launch) {
#if HIPNORM_BULK_COPIES
  if constexpr (sizeof(T) <= 4) {
    const Problem& p = launch.problem;
    const Plan& plan = launch.plan;
    const int split = launch.config.split;
    const auto kernel = forward_ring_kernel_for<T>(p, plan.vectors);
    if (kernel == nullptr || !launch.device.bulk_copies) return hipErrorInvalidConfiguration;
    const auto lds_bytes = static_cast<std::size_t>(plan.lds_bytes);
    const hipError_t error = prepare_kernel(kernel, launch.device, lds_bytes, split);
    if (error != hipSuccess) return error;

    const bool wide = p.weight != p.x;
    const ForwardRingArgs kernel_args = {
        .ring = make_ring(launch, args.y, p.cols, args.x_stride),
        .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
        .weight = {args.weight, wide},
        .bias = {args.bias, wide},
        .mean = static_cast<float*>(args.mean),
        .rstd = static_cast<float*>(args.rstd),
        .eps = args.eps};
    const Grid grid = {.blocks = plan.tasks,
                       .threads = plan.threads,
                       .lds_bytes = lds_bytes,
                       .cluster = split,
                       .stream = static_cast<hipStream_t>(launch.stream)};
    return launch_kernel(kernel, grid, kernel_args);
  }
#endif
  return hipErrorInvalidConfiguration;
}

template <class T>
int forward_ring_resident(const Config& config, const Plan& plan, const Problem& problem,
                          const Device& device) {
#if HIPNORM_BULK_COPIES
  if constexpr (sizeof(T) <= 4) {
    const auto kernel = forward_ring_kernel_for<T>(problem, plan.vectors);
    if (kernel == nullptr || !device.bulk_copies) return 0;
    return resident_clusters(kernel, device, plan.threads, static_cast<std::size_t>(plan.lds_bytes),
                             config.split);
  }
#endif
  return 0;
}

template hipError_t forward_ring<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);
template int forward_ring_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                    const Device&);

}  // namespace hipnorm::gpu
