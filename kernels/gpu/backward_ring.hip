// backward_ring: dX, dW and dB in one pass over x and dy, by persistent groups whose rows pass
// through a ring in LDS (ring.h).
//
// A step is R rows of the group. First phase: x̂ from the saved mean and rstd, Σg and Σg·x̂ of each
// row, and the column sums, which stay in registers over all rows. Second phase: dX.
#include <cmath>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/ring.h"
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
  char* dx;        // null: not asked for
  float* dweight;  // partial rows: groups × pitch; null: not asked for
  float* dbias;
  std::int64_t pitch;
};

// mean and rstd as the kernel uses them: where x̂ = 0 by definition, as x·0.
struct RowScale {
  float mean, rstd;
  __device__ __forceinline__ explicit RowScale(const RowRecord& record)
      : mean(usable(record.b) ? record.a : 0), rstd(usable(record.b) ? record.b : 0) {}
};

// A computing lane.
template <class T, int V, int R, bool kPacked>
class BackwardLane {
  // Packets of x and dy that are read at once. Five and their sums leave room for one.
  static constexpr int N = V <= 3 ? V : V == 4 ? 2 : 1;
  static constexpr int E = kElements<T>, kSums = 2 * R;
  // Lanes that hold the sum of one value after wave_sums.
  static constexpr int kLanes = kWave / kSums;

 public:
  __device__ __forceinline__ BackwardLane(const BackwardRingArgs& args, const Slice& slice)
      : a_(args), slice_(slice), lane_(static_cast<int>(threadIdx.x) % kWave) {
    chunks_.init(a_.ring, slice_);
    load_parameters(a_.ring, slice_, chunks_, a_.weight, 1.0f, weight_);
  }

  // Sums the rows of a step and posts Σg and Σg·x̂ of this wave to every block of the cluster.
  __device__ __forceinline__ void sum(int step, Turn turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(full_barrier(ring, stage), turn.stage_parity(ring));
    float sums[kSums] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r > 0 && step * R + r >= slice_.rows) break;
      const RowRecord record = lds_at<RowRecord>(ring.records)[stage * R + r];
      const RowScale scale(record);
#pragma unroll
      for (int first = 0; first < V; first += N) {
        Packet packets[2][N];
        read_packets<T, true>(ring, slice_, chunks_, record.at, first, packets);
#pragma unroll
        for (int j = first; j < first + N && j < V; ++j) {
          // A lane without a chunk has zeros there; 0 − mean, times rstd, might overflow.
          const float mean = chunks_.exists(slice_, j) ? scale.mean : 0;
#pragma unroll
          for (int i = 0; i < E; ++i) {
            const float dy = element<T>(packets[1][j - first], i);
            const float normal = (element<T>(packets[0][j - first], i) - mean) * scale.rstd;
            const float g = dy * weight_.get(j, i);
            sums[2 * r] += g;
            sums[2 * r + 1] = fmaf(g, normal, sums[2 * r + 1]);
            dweight_[j][i] = fmaf(dy, normal, dweight_[j][i]);
            dbias_[j][i] += dy;
          }
        }
      }
    }
    if (a_.dx == nullptr) return;
    const float mine = wave_sums(sums);
    const int wave = static_cast<int>(threadIdx.x) / kWave;
    const Lds<float> place = lds_at<float>(ring.slots + turn.slot * ring.slot_bytes) +
                             ((slice_.rank * ring.waves + wave) * kSums + lane_ / kLanes);
    const Lds<AsyncBarrier> barrier = sums_barrier(ring, turn.slot);
    for (int rank = lane_ % kLanes; rank < ring.split; rank += kLanes) {
      post(remote(place, rank), mine, remote(barrier, rank));
    }
  }

  // Writes the step's rows of dX.
  __device__ __forceinline__ void apply(int step, Turn turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    const float total = totals(turn) / static_cast<float>(ring.cols);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float c1 = __shfl(total, 2 * r * kLanes, kWave);
      const float c2 = __shfl(total, (2 * r + 1) * kLanes, kWave);
      if (r > 0 && step * R + r >= slice_.rows) break;
      const RowRecord record = lds_at<RowRecord>(ring.records)[stage * R + r];
      const RowScale scale(record);
      const float minus_slope = -scale.rstd * c2;
      char* row = a_.dx + slice_.row(ring, step * R + r) * ring.out_stride;
#pragma unroll
      for (int first = 0; first < V; first += N) {
        Packet packets[2][N];
        read_packets<T, false>(ring, slice_, chunks_, record.at, first, packets);
#pragma unroll
        for (int j = first; j < first + N && j < V; ++j) {
          float dx[E];
#pragma unroll
          for (int i = 0; i < E; ++i) {
            const float g = element<T>(packets[1][j - first], i) * weight_.get(j, i);
            const float centred = element<T>(packets[0][j - first], i) - scale.mean;
            dx[i] = fmaf(centred, minus_slope, g - c1) * scale.rstd;
          }
          write_packet<T>(ring, slice_, chunks_, row, j, pack<T>(dx));
        }
      }
    }
  }

  // Writes this group's partial rows of dW and dB.
  __device__ __forceinline__ void store_columns() const {
    const std::int64_t first = slice_.group * a_.pitch;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (!chunks_.exists(slice_, j)) continue;
      const Chunk c = chunks_.of(a_.ring, slice_, j);
      if (a_.dweight != nullptr) store(a_.dweight + first, c, dweight_[j]);
      if (a_.dbias != nullptr) store(a_.dbias + first, c, dbias_[j]);
    }
  }

 private:
  // The sums that all waves of the cluster have posted for a step: every lane one of them.
  __device__ __forceinline__ float totals(Turn turn) const {
    const Ring& ring = a_.ring;
    barrier_wait(sums_barrier(ring, turn.slot), turn.slot_parity);
    const int place = ring.slots + turn.slot * ring.slot_bytes;
    float sums[kSums] = {};
    for (int from = lane_; from < ring.split * ring.waves; from += kWave) {
      if constexpr (R == 1) {
        const Pair posted = lds_at<Pair>(place)[from];
        sums[0] += posted.a;
        sums[1] += posted.b;
      } else {
#pragma unroll
        for (int k = 0; k < kSums; k += 4) {
          const Packet posted = lds_at<Packet>(place)[from * (kSums / 4) + k / 4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[k + i] += bits_as<float>(posted.word[i]);
        }
      }
    }
    return wave_sums(sums);
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
  const Slice& slice_;
  int lane_;
  LaneChunks<T, V> chunks_;
  Parameters<T, kPacked, V> weight_;
  float dweight_[V][E] = {};
  float dbias_[V][E] = {};
};

template <class T, int V, int R, bool kPacked>
__device__ __forceinline__ void backward(const BackwardRingArgs& args) {
  const Ring& ring = args.ring;
  const Slice slice = slice_of<T>(ring);
  if (static_cast<int>(threadIdx.x) / kWave == ring.waves) {
    const int posted = args.dx == nullptr ? 0 : ring.split * ring.waves * R * 8;
    load_rows<T, 2, R>(ring, slice, args.x, args.dy, posted,
                       [&](std::int64_t row) { return Pair{args.mean[row], args.rstd[row]}; });
    return;
  }
  BackwardLane<T, V, R, kPacked> lane(args, slice);
  __syncthreads();
  if (ring.split > 1) {
    cluster_arrive();
    cluster_wait();
  }
  const bool one_phase = args.dx == nullptr;
  const int steps = (slice.rows + R - 1) / R, turns = one_phase ? steps : steps + 1;
  Turn turn;
  for (int i = 0; i < turns; ++i, turn = turn.next(ring)) {
    if (i < steps) lane.sum(i, turn);
    Turn done = turn;
    if (!one_phase) {
      if (i == 0) continue;
      done = turn.previous(ring);
      lane.apply(i - 1, done);
    }
    wave_sync();
    if (threadIdx.x % kWave == 0) barrier_arrive(empty_barrier(ring, done.stage(ring)));
  }
  lane.store_columns();
}

// Without the 1, ptxas sometimes wants two blocks on a multiprocessor, and spills for it.
template <class T, int V, int R, bool kPacked, int kThreads>
__global__ void __launch_bounds__(kThreads + kWave, 1) backward_ring_kernel(BackwardRingArgs args) {
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
      case 41: return wide ? instance<T, 4, 1, false, kBackwardRingWide>() : nullptr;
      case 51: return wide ? nullptr : instance<T, 5, 1, true, kBackwardRing>();
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
        .ring = make_ring(launch, dx ? args.dx : args.x, dx ? p.cols : args.x_stride),
        .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
        .dy = make_rows(args.dy, args.dy_stride, p.rows, p.cols, sizeof(T)),
        .mean = static_cast<const float*>(args.mean),
        .rstd = static_cast<const float*>(args.rstd),
        .weight = {args.weight, p.weight != p.x},
        .dx = dx ? static_cast<char*>(args.dx) : nullptr,
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
