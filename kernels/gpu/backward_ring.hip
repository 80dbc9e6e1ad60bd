// backward_ring: dX, dW and dB in one pass over x and dy, by persistent groups whose rows pass
// through a ring in LDS (ring.h).
//
// A step is R rows of the group. First phase: x̂ from the saved mean and rstd, Σg and Σg·x̂ of each
// row, and the column sums, which stay in registers over all rows. Second phase: dX.
#include <cmath>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/ring_lanes.h"
#include "kernels/gpu/ring_loader.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {

#if HIPNORM_BULK_COPIES
namespace {

struct BackwardRingArgs {
  Ring ring;
  Rows x, dy;
  const float* mean;
  const float* rstd;
  Parameter weight;
  bool dx;         // is asked for
  float* dweight;  // partial rows: groups × pitch; null: not asked for
  float* dbias;
  std::int64_t pitch;
};

// What a row's dx is made of: x̂ = (x − mean)·rstd and
// dx = (g − c1 − x̂·c2)·rstd = (x − mean)·slope + g·rstd + shift, slope = −c2·rstd², shift =
// −c1·rstd. Where f32 cannot hold these, c1 and c2 are kept, and NaN for rstd, which block.values
// has, too.
[[maybe_unused]] __device__ __forceinline__ RowResult row_result(Pair scale, float c1, float c2) {
  const float slope = -c2 * scale.b * scale.b, shift = -c1 * scale.b;
  if (is_finite(slope) && is_finite(shift)) return {{scale.a, scale.b, shift, slope}};
  return {{scale.a, NAN, c1, c2}};
}
[[maybe_unused]] __device__ __forceinline__ bool is_extreme(const RowResult& result) {
  return result.value[1] != result.value[1];
}

template <class T, int R>
struct BackwardFinisher {
  static constexpr int kSums = 2 * R;
  // Lanes that hold the sum of one value after wave_sums.
  static constexpr int kLanes = kWave / kSums;
  const BackwardRingArgs& a;
  const Block<T>& block;
  const Divisor<float> cols;

  // From what all waves of the cluster have posted for a step to its rows' results.
  __device__ __forceinline__ void finish(const Turn& turn) const {
    const Ring& ring = a.ring;
    const int lane = static_cast<int>(threadIdx.x) % kWave;
    const int slot = ring.slots + turn.slot * ring.slot_bytes, waves = ring.split * ring.waves;
    float sums[kSums] = {};
#pragma unroll 2
    for (int w = lane; w < waves; w += kWave) {
      if constexpr (R == 1) {
        const Pair posted = block.memory.template at<Pair>(slot)[w];
        sums[0] += posted.a;
        sums[1] += posted.b;
      } else {
#pragma unroll
        for (int k = 0; k < kSums; k += 4) {
          const Packet posted = block.memory.template at<Packet>(slot)[w * (kSums / 4) + k / 4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[k + i] += bits_as<float>(posted.word[i]);
        }
      }
    }
    const float sum = wave_sums(sums);
    const float mean_of_sum = is_finite(sum) ? cols.divide(sum) : sum;
    const int r = lane % R;
    const float c1 = __shfl(mean_of_sum, 2 * r * kLanes, kWave);
    const float c2 = __shfl(mean_of_sum, (2 * r + 1) * kLanes, kWave);
    if (lane < R) {
      const int row = turn.stage(ring) * R + r;
      Pair scale = *block.values(row);
      if (ring.cols == 1) scale.b = 0;  // dx of a single column is exactly 0
      *block.result(row) = row_result(scale, c1, c2);
    }
  }
};

// A computing lane.
template <class T, int V, int R, bool kPacked>
class BackwardLane {
  // Packets of x and dy that are read at once. Four and their sums leave room for one.
  static constexpr int N = V <= 3 ? V : 1;
  static constexpr int E = kElements<T>, kSums = 2 * R, kLanes = BackwardFinisher<T, R>::kLanes;
  static constexpr bool kStraight = LaneChunks<T, V>::kStraight;

 public:
  __device__ __forceinline__ BackwardLane(const BackwardRingArgs& args, const Block<T>& block)
      : a_(args),
        block_(block),
        chunks_(block),
        out_(first_output(block, chunks_)),
        x_(block, args.x, args.ring.line_step[0]),
        dy_(block, args.dy, args.ring.line_step[1]) {}

  // Before the waves meet.
  __device__ __forceinline__ void start() {
    load_parameters(block_, chunks_, a_.weight, 1.0f, weight_);
  }

  // Sums the rows of a step and posts Σg and Σg·x̂ of this wave to every block of the cluster.
  __device__ __forceinline__ void sum(int step, const Turn& turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(block_.full(stage), turn.stage_parity(ring));
    float sums[kSums] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r > 0 && step * R + r >= block_.slice.rows) break;
      const Pair scale = *block_.values(stage * R + r);
      const int at[2] = {place(stage, r, step, 0), place(stage, r, step, 1)};
      float sum[2] = {};
      if (kStraight && chunks_.whole && is_aligned(at)) {
        sum_row<kStraight>(at, scale, sum);
      } else {
        sum_row<false>(at, scale, sum);
      }
      sums[2 * r] = sum[0];
      sums[2 * r + 1] = sum[1];
    }
    if (!a_.dx) return;
    const float mine = wave_sums(sums);
    const unsigned lane = chunks_.lane();
    const int wave = block_.slice.rank * ring.waves + static_cast<int>(chunks_.wave());
    const int first_rank = static_cast<int>(lane % kLanes);
    const Lds<float> place = block_.memory.template at<float>(
        ring.slots + turn.slot * ring.slot_bytes +
        (wave * kSums + static_cast<int>(lane / kLanes)) * static_cast<int>(sizeof(float)));
    const Lds<AsyncBarrier> barrier = block_.sums(turn.slot);
    if (ring.split == 1) {
      if (first_rank == 0) {
        *place = mine;
        barrier_arrive(barrier);
      }
      return;
    }
    // Clusters have at most 16 blocks.
#pragma unroll
    for (int i = 0; i < 16; i += kLanes) {
      const int rank = first_rank + i;
      if (rank < ring.split) post(remote(place, rank), mine, remote(barrier, rank));
    }
  }

  // Writes the step's rows of dX.
  __device__ __forceinline__ void apply(int step, const Turn& turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(block_.ready(stage), turn.stage_parity(ring));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r > 0 && step * R + r >= block_.slice.rows) break;
      const RowResult result = *block_.result(stage * R + r);
      const int at[2] = {place(stage, r, step, 0), place(stage, r, step, 1)};
      if (is_extreme(result)) {
        const float rstd = block_.values(stage * R + r)->b, c2 = result.value[3];
        apply_row<false, true>(at, {{result.value[0], rstd, result.value[2], -c2 * rstd}});
      } else if (kStraight && chunks_.whole && is_aligned(at)) {
        apply_row<kStraight, false>(at, result);
      } else {
        apply_row<false, false>(at, result);
      }
      out_ += ring.out_step;
    }
  }

  // Writes this group's partial rows of dW and dB.
  __device__ __forceinline__ void store_columns() const {
    const std::int64_t first = block_.slice.group * a_.pitch;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (!chunks_.exists(block_, j)) continue;
      const Chunk c = chunks_.of(block_, j);
      if (a_.dweight != nullptr) store(a_.dweight + first, c, dweight_[j]);
      if (a_.dbias != nullptr) store(a_.dbias + first, c, dbias_[j]);
    }
  }

 private:
  // Adds a row to the column sums, and Σg and Σg·x̂ of the lane's part of it to `sum`.
  template <bool kQuick>
  __device__ __forceinline__ void sum_row(const int (&at)[2], const Pair& scale, float (&sum)[2]) {
#pragma unroll
    for (int first = 0; first < V; first += N) {
      Packet packets[2][N];
      read_packets<T, kQuick, true>(block_, chunks_, at, first, packets);
#pragma unroll
      for (int j = first; j < first + N && j < V; ++j) {
        if (j >= 3) weight_.stay_packed(j);  // registers are short by half a packet
        // A lane without a chunk has zeros there; 0 − mean, times rstd, might overflow.
        const float mean = kQuick || chunks_.exists(block_, j) ? scale.a : 0;
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const float dy = element<T>(packets[1][j - first], i);
          const float normal = (element<T>(packets[0][j - first], i) - mean) * scale.b;
          const float g = weighted(dy, weight_.get(j, i));
          sum[0] += g;
          sum[1] = fmaf(g, normal, sum[1]);
          dweight_[j][i] = fmaf(dy, normal, dweight_[j][i]);
          dbias_[j][i] += dy;
        }
      }
    }
  }

  // kExtreme: of c1 and −c2·rstd instead of shift and slope.
  template <bool kQuick, bool kExtreme>
  __device__ __forceinline__ void apply_row(const int (&at)[2], const RowResult& result) {
    const float mean = result.value[0], rstd = result.value[1], shift = result.value[2],
                slope = result.value[3];
#pragma unroll
    for (int first = 0; first < V; first += N) {
      Packet packets[2][N], out[N];
      read_packets<T, kQuick, false>(block_, chunks_, at, first, packets);
#pragma unroll
      for (int j = first; j < first + N && j < V; ++j) {
        if (j >= 3) weight_.stay_packed(j);
        float dx[E];
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const float g = weighted(element<T>(packets[1][j - first], i), weight_.get(j, i));
          const float centred = element<T>(packets[0][j - first], i) - mean;
          dx[i] = kExtreme ? fmaf(centred, slope, g - shift) * rstd
                           : fmaf(centred, slope, fmaf(g, rstd, shift));
        }
        out[j - first] = pack<T>(dx);
      }
      write_packets<T, kQuick>(block_, chunks_, out_, first, out);
    }
  }

  // g, the same number in both phases. Of two 16-bit numbers it is exact, whether or not the
  // compiler makes it one half of a fused multiply-add.
  __device__ __forceinline__ static float weighted(float dy, float weight) {
    return kPacked ? dy * weight : product(dy, weight);
  }

  // Where row r of a step begins in LDS.
  __device__ __forceinline__ int place(int stage, int r, int step, int tensor) const {
    const LinePlace& line = tensor == 0 ? x_ : dy_;
    return ((stage * R + r) * 2 + tensor) * a_.ring.row_bytes + line.of(step * R + r);
  }

  __device__ __forceinline__ static void store(float* row, Chunk c, const float (&values)[E]) {
    float* to = row + c.first;
    if (c.template full<T>() && c.first % 4 == 0) {
#pragma unroll
      for (int i = 0; i < E; i += 4) {
        *reinterpret_cast<Packet*>(to + i) =
            pack<float>({values[i], values[i + 1], values[i + 2], values[i + 3]});
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
      if (c.holds(i)) to[i] = values[i];
    }
  }

  const BackwardRingArgs& a_;
  const Block<T>& block_;
  const LaneChunks<T, V> chunks_;
  char* out_;  // chunk 0 of the row that is written next
  const LinePlace x_, dy_;
  Parameters<T, kPacked, V> weight_;
  float dweight_[V][E] = {};
  float dbias_[V][E] = {};
};

template <class T, int V, int R, bool kPacked>
__device__ __forceinline__ void backward(const BackwardRingArgs& args) {
  const Ring& ring = args.ring;
  const Block<T> block(ring);
  const bool exchange = args.dx;
  const int wave = static_cast<int>(threadIdx.x) / kWave;
  // mean and rstd as the kernel uses them: where x̂ = 0 by definition, as x·0.
  const auto scale_of_row = [&](std::int64_t row) {
    const Pair saved = {args.mean[row], args.rstd[row]};
    return usable(saved.b) ? saved : Pair{0, 0};
  };
  Loader<T, 2, R, decltype(scale_of_row)> loader(block, args.x, args.dy, scale_of_row);
  BackwardLane<T, V, R, kPacked> lane(args, block);
  if (wave < ring.waves) lane.start();
  if (wave == ring.waves) loader.start();
  block.meet();

  if (wave == ring.waves) {
    loader.run();
    return;
  }
  if (wave > ring.waves) {
    const BackwardFinisher<T, R> finisher{args, block,
                                          Divisor<float>(static_cast<float>(ring.cols))};
    if (!exchange) return;
    run_finisher<T, R>(block, ring.split * ring.waves * R * static_cast<int>(sizeof(Pair)),
                       [&](int, const Turn& turn) { finisher.finish(turn); });
    return;
  }
  run_computing_wave<T, R>(
      block, exchange, [&](int step, const Turn& turn) { lane.sum(step, turn); },
      [&](int step, const Turn& turn) { lane.apply(step, turn); });
  next_may_start();
  lane.store_columns();
}

// Without the 1, ptxas sometimes wants two blocks on a multiprocessor, and spills for it.
template <class T, int V, int R, bool kPacked, int kThreads>
__global__ void __launch_bounds__(kThreads + kRingServants * kWave, 1)
    backward_ring_kernel(BackwardRingArgs args) {
  if constexpr (kBulkCopies) backward<T, V, R, kPacked>(args);
}

using BackwardRingKernel = void (*)(BackwardRingArgs);

template <class T, int V, int R, bool kPacked, const auto& kInstances>
constexpr BackwardRingKernel instance() {
  return backward_ring_kernel<T, V, R, kPacked, max_threads(kInstances, V)>;
}

// Null: there is none. Up to two packets a lane the weights are f32 in registers whatever they are
// in memory: that leaves out 16 conversions a packet, and costs no instance for f32 weights.
template <class T>
BackwardRingKernel backward_ring_kernel_for(const Problem& problem, int vectors, int rows) {
  const int key = vectors * 10 + rows;
  if constexpr (sizeof(T) == 4) {
    switch (key) {
      case 11: return instance<T, 1, 1, false, kBackwardRingF32>();
      case 12: return instance<T, 1, 2, false, kBackwardRingF32>();
      case 14: return instance<T, 1, 4, false, kBackwardRingF32>();
      case 21: return instance<T, 2, 1, false, kBackwardRingF32>();
      case 22: return instance<T, 2, 2, false, kBackwardRingF32>();
      case 31: return instance<T, 3, 1, false, kBackwardRingF32>();
      case 51: return instance<T, 5, 1, false, kBackwardRingF32>();
      default: return nullptr;
    }
  } else {
    const bool wide = problem.weight == DType::f32;
    switch (key) {
      case 11: return instance<T, 1, 1, false, kBackwardRing>();
      case 12: return instance<T, 1, 2, false, kBackwardRing>();
      case 14: return instance<T, 1, 4, false, kBackwardRing>();
      case 21: return instance<T, 2, 1, false, kBackwardRing>();
      case 22: return instance<T, 2, 2, false, kBackwardRing>();
      case 31:
        return wide ? instance<T, 3, 1, false, kBackwardRingWide>()
                    : instance<T, 3, 1, true, kBackwardRing>();
      case 41: return wide ? nullptr : instance<T, 4, 1, true, kBackwardRing>();
      default: return nullptr;
    }
  }
}

}  // namespace
#endif

template <class T>
hipError_t backward_ring(const BackwardArgs& args, const Launch& launch) {
#if HIPNORM_BULK_COPIES
  if constexpr (sizeof(T) <= 4) {
    const Problem& p = launch.problem;
    const Config& config = launch.config;
    const Plan& plan = launch.plan;
    const auto kernel = backward_ring_kernel_for<T>(p, plan.vectors, config.rows_per_block);
    if (kernel == nullptr || !launch.device.bulk_copies) return hipErrorInvalidConfiguration;
    const auto lds_bytes = static_cast<std::size_t>(plan.lds_bytes);
    hipError_t error = prepare_kernel(kernel, launch.device, lds_bytes, config.split);
    if (error != hipSuccess) return error;

    const bool dx = p.grads.dx;
    char* workspace = static_cast<char*>(args.workspace);
    const auto partial = [&](bool asked, std::int64_t offset) {
      return asked ? reinterpret_cast<float*>(workspace + offset) : nullptr;
    };
    const BackwardRingArgs kernel_args = {
        .ring = make_ring(launch, dx ? args.dx : args.x, dx ? p.cols : args.x_stride, args.x_stride,
                          args.dy_stride),
        .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
        .dy = make_rows(args.dy, args.dy_stride, p.rows, p.cols, sizeof(T)),
        .mean = static_cast<const float*>(args.mean),
        .rstd = static_cast<const float*>(args.rstd),
        .weight = {args.weight, p.weight != p.x},
        .dx = dx,
        .dweight = partial(p.grads.dweight, plan.dweight_offset),
        .dbias = partial(p.grads.dbias, plan.dbias_offset),
        .pitch = plan.pitch};
    const Grid grid = {.blocks = plan.tasks,
                       .threads = plan.threads,
                       .lds_bytes = lds_bytes,
                       .cluster = config.split,
                       .stream = static_cast<hipStream_t>(launch.stream)};
    error = launch_kernel(kernel, grid, kernel_args);
    if (error != hipSuccess || !p.grads.columns()) return error;
    return reduce_parts<T>(args, launch);
  }
#endif
  return hipErrorInvalidConfiguration;
}

template <class T>
int backward_ring_resident(const Config& config, const Plan& plan, const Problem& problem,
                           const Device& device) {
#if HIPNORM_BULK_COPIES
  if constexpr (sizeof(T) <= 4) {
    const auto kernel = backward_ring_kernel_for<T>(problem, plan.vectors, config.rows_per_block);
    if (kernel == nullptr || !device.bulk_copies) return 0;
    return resident_clusters(kernel, device, plan.threads, static_cast<std::size_t>(plan.lds_bytes),
                             config.split);
  }
#endif
  return 0;
}

template hipError_t backward_ring<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template int backward_ring_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                     const Device&);

}  // namespace hipnorm::gpu
