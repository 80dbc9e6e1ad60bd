// forward_ring: by persistent groups whose rows pass through a ring in LDS (ring.h), one exchange a
// row.
//
// First phase: a wave's part of Σ(x − x₀), and the squares of its elements around their own mean,
// which it posts. Second phase: mean and variance of the row from those of all waves (Chan, Golub,
// LeVeque 1983, "Algorithms for Computing the Sample Variance", eq. 2.1), and y. Every wave of the
// cluster combines the same numbers in the same order, so they agree without another exchange.
#include <cmath>

#include "kernels/gpu/launchers.h"
#include "kernels/gpu/reduce.h"
#include "kernels/gpu/ring.h"
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

__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= Extremes<float>::kMax; }

// A number of elements and its reciprocal: to divide by it in three instructions, rounded as by a
// division (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000").
struct Count {
  float n, reciprocal;
  __device__ __forceinline__ explicit Count(int count)
      : n(static_cast<float>(count)),
        reciprocal(count > 0 ? 1.0f / static_cast<float>(count) : 0) {}
  __device__ __forceinline__ explicit Count(Pair pair) : n(pair.a), reciprocal(pair.b) {}
  __device__ __forceinline__ float mean(float sum) const {
    const float quotient = sum * reciprocal;
    return fmaf(fmaf(-quotient, n, sum), reciprocal, quotient);
  }
};

// A computing lane.
template <class T, int V, bool kPacked>
class ForwardLane {
  static constexpr int E = kElements<T>;
  static constexpr int N = V <= 2 ? V : 2;  // packets that are read at once for the second phase

 public:
  __device__ __forceinline__ ForwardLane(const ForwardRingArgs& args, const Slice& slice)
      : a_(args),
        slice_(slice),
        lane_(static_cast<int>(threadIdx.x) % kWave),
        wave_(slice.rank * args.ring.waves + static_cast<int>(threadIdx.x) / kWave) {
    chunks_.init(a_.ring, slice_);
    load_parameters(a_.ring, slice_, chunks_, a_.weight, 1.0f, weight_);
    load_parameters(a_.ring, slice_, chunks_, a_.bias, 0.0f, bias_);
    const int waves = a_.ring.split * a_.ring.waves;
    for (int w = static_cast<int>(threadIdx.x); w < waves; w += a_.ring.waves * kWave) {
      const Count count(elements_of(w));
      lds_at<Pair>(a_.ring.counts)[w] = {count.n, count.reciprocal};
    }
  }

  // Sums a row and posts what this wave found to every block of the cluster.
  __device__ __forceinline__ void sum(Turn turn) {
    const Ring& ring = a_.ring;
    const int stage = turn.stage(ring);
    barrier_wait(full_barrier(ring, stage), turn.stage_parity(ring));
    const RowRecord record = lds_at<RowRecord>(ring.records)[stage];
    Packet packets[1][V];
    read_packets<T, false>(ring, slice_, chunks_, record.at, 0, packets);
    float d[V][E], s[2] = {};
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float first = chunks_.exists(slice_, j) ? record.a : 0;
#pragma unroll
      for (int i = 0; i < E; ++i) d[j][i] = element<T>(packets[0][j], i) - first;
    }
    if (chunks_.partial) replace_outside(d, 0);
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int i = 0; i < E; ++i) s[i % 2] += d[j][i];
    }
    float sum = wave_sum(s[0] + s[1]);
    if (!finite(sum)) sum = mark_of_extreme_sum(record);

    const float mean = Count(lds_at<Pair>(ring.counts)[wave_]).mean(sum);
    if (chunks_.partial) replace_outside(d, mean);
    float q[2] = {};
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float centre = chunks_.exists(slice_, j) ? mean : 0;
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float centred = d[j][i] - centre;
        q[i % 2] = fmaf(centred, centred, q[i % 2]);
      }
    }
    const float squares = wave_sum(q[0] + q[1]);
    if (lane_ < ring.split) {
      const Lds<Pair> place = lds_at<Pair>(ring.slots + turn.slot * ring.slot_bytes) + wave_;
      post(remote(place, lane_), Pair{sum, squares}, remote(sums_barrier(ring, turn.slot), lane_));
    }
  }

  // Writes row k of the group.
  __device__ __forceinline__ void apply(int k, Turn turn) {
    const Ring& ring = a_.ring;
    const std::int64_t r = slice_.row(ring, k);
    const RowRecord record = lds_at<RowRecord>(ring.records)[turn.stage(ring)];
    barrier_wait(sums_barrier(ring, turn.slot), turn.slot_parity);
    Mean<float> mean;
    float rstd;
    statistics(lds_at<Pair>(ring.slots + turn.slot * ring.slot_bytes), record.a, r, mean, rstd);
    if (slice_.rank == 0 && threadIdx.x == 0) {
      a_.mean[r] = mean.high;
      a_.rstd[r] = rstd;
    }
    if (!usable(rstd)) {  // x̂ = 0, as x·0: x − mean might overflow
      mean = {0, 0};
      rstd = 0;
    }
    char* row = const_cast<char*>(ring.out) + r * ring.out_stride;
#pragma unroll
    for (int first = 0; first < V; first += N) {
      Packet packets[1][N];
      read_packets<T, false>(ring, slice_, chunks_, record.at, first, packets);
#pragma unroll
      for (int j = first; j < first + N && j < V; ++j) {
        float y[E];
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const float normal = mean.centred(element<T>(packets[0][j - first], i)) * rstd;
          y[i] = fmaf(normal, weight_.get(j, i), bias_.get(j, i));
        }
        write_packet<T>(ring, slice_, chunks_, row, j, pack<T>(y));
      }
    }
  }

 private:
  // Columns before chunk v, of all chunks of a row.
  __device__ __forceinline__ int columns_before(int v) const {
    const int columns = v * E - slice_.shift;
    return columns < 0 ? 0 : columns < a_.ring.cols ? columns : a_.ring.cols;
  }
  // Elements of a row that wave w of the cluster sums.
  __device__ __forceinline__ int elements_of(int w) const {
    const Ring& ring = a_.ring;
    const int rank = w / ring.waves;
    const int begin = (w - rank * ring.waves) * (kWave * V), end = begin + kWave * V;
    const auto within = [&](int v) {
      return rank * ring.slice + (v < ring.slice ? v : ring.slice);
    };
    return columns_before(within(end)) - columns_before(within(begin));
  }

  __device__ __forceinline__ void replace_outside(float (&values)[V][E], float by) const {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const Chunk c = chunks_.of(a_.ring, slice_, j);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        if (chunks_.exists(slice_, j) && !c.holds(i)) values[j][i] = by;
      }
    }
  }

  // What a wave posts instead of a sum that is not finite: NaN if one of its elements is not, else
  // Inf. (x₀ may have made it so, and then its own wave says NaN.)
  __device__ __forceinline__ float mark_of_extreme_sum(const RowRecord& record) const {
    float bad = 0;
#pragma unroll 1  // few registers are left
    for (int j = 0; j < V; ++j) {
      Packet packets[1][1];
      read_packets<T, true>(a_.ring, slice_, chunks_, record.at, j, packets);
#pragma unroll
      for (int i = 0; i < E; ++i) bad += finite(element<T>(packets[0][0], i)) ? 0 : 1;
    }
    const float infinity = 2 * Extremes<float>::kMax;
    return wave_sum(bad) > 0 ? infinity - infinity : infinity;
  }

  // Mean and rstd of row r, x₀ = first, from what all waves posted.
  __device__ __forceinline__ void statistics(Lds<Pair> posted, float first, std::int64_t r,
                                             Mean<float>& mean, float& rstd) const {
    const Lds<Pair> counts = lds_at<Pair>(a_.ring.counts);
    const int waves = a_.ring.split * a_.ring.waves;
    const float cols = static_cast<float>(a_.ring.cols);
    float sum = 0;
    for (int w = lane_; w < waves; w += kWave) sum += posted[w].a;
    sum = wave_sum(sum);
    mean = mean_of(first, sum, cols);
    const float shifted = sum / cols;  // mean − x₀
    float squares = 0;
    for (int w = lane_; w < waves; w += kWave) {
      const Pair part = posted[w];
      const Count count(counts[w]);
      const float difference = count.mean(part.a) - shifted;
      squares += fmaf(count.n * difference, difference, part.b);
    }
    squares = wave_sum(squares);
    float scale = 1;
    if (finite(sum) && !needs_scaling(squares, a_.eps, scale)) {
      rstd = rstd_of(squares, cols, 1.0f, a_.eps);
      return;
    }
    if (finite(sum)) {
      rstd = rstd_of(scaled_squares(r, mean, scale), cols, scale, a_.eps);
      return;
    }
    float bad = 0;
    for (int w = lane_; w < waves; w += kWave) {
      const float part = posted[w].a;
      bad += part != part ? 1 : 0;
    }
    if (wave_sum(bad) > 0) {
      rstd = sum - sum;  // NaN
      mean = {rstd, rstd};
    } else {  // the variance overflows
      rstd = 0;
      mean = {first, 0};
    }
  }

  // Σ((x − mean)·scale)² of a row whose squares f32 cannot hold, read again from memory, by every
  // wave for itself.
  __device__ __forceinline__ float scaled_squares(std::int64_t r, const Mean<float>& mean,
                                                  float scale) const {
    const T* row = reinterpret_cast<const T*>(a_.x.row(r));
    float sum = 0;
#pragma unroll 4
    for (int c = lane_; c < a_.ring.cols; c += kWave) {
      const float d = mean.centred(to_accumulate(row[c])) * scale;
      sum = fmaf(d, d, sum);
    }
    return wave_sum(sum);
  }

  const ForwardRingArgs& a_;
  const Slice& slice_;
  int lane_;
  int wave_;  // of the cluster
  LaneChunks<T, V> chunks_;
  Parameters<T, kPacked, V> weight_, bias_;
};

template <class T, int V, bool kPacked>
__device__ __forceinline__ void forward(const ForwardRingArgs& args) {
  const Ring& ring = args.ring;
  const Slice slice = slice_of<T>(ring);
  if (static_cast<int>(threadIdx.x) / kWave == ring.waves) {
    load_rows<T, 1, 1>(
        ring, slice, args.x, args.x, ring.split * ring.waves * 8, [&](std::int64_t row) {
          return Pair{to_accumulate(*reinterpret_cast<const T*>(args.x.row(row))), 0};
        });
    return;
  }
  ForwardLane<T, V, kPacked> lane(args, slice);
  __syncthreads();
  if (ring.split > 1) {
    cluster_arrive();
    cluster_wait();
  }
  Turn turn;
  for (int i = 0; i <= slice.rows; ++i, turn = turn.next(ring)) {
    if (i < slice.rows) lane.sum(turn);
    if (i == 0) continue;
    const Turn before = turn.previous(ring);
    lane.apply(i - 1, before);
    wave_sync();
    if (threadIdx.x % kWave == 0) barrier_arrive(empty_barrier(ring, before.stage(ring)));
  }
}

// Without the 1, ptxas sometimes wants two blocks on a multiprocessor, and spills for it.
template <class T, int V, bool kPacked, int kThreads>
__global__ void __launch_bounds__(kThreads + kWave, 1) forward_ring_kernel(ForwardRingArgs args) {
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
        .ring = make_ring(launch, args.y, p.cols),
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
