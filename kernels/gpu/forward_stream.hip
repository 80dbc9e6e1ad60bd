// forward_stream: a block a row that is read twice, so any N. The statistics take one reading:
// each thread centres batches of a few packets in its registers and adds their moments in double.
#include "kernels/gpu/group.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/row.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {
namespace {

constexpr int kMaxThreads = 640;  // 96 registers on NVIDIA; 80 spill
constexpr int kBatch = 4;         // packets that a thread has under way

struct ForwardStreamArgs {
  Rows x;
  char* y;
  Parameter weight;
  Parameter bias;
  void* mean;
  void* rstd;
  std::int64_t rows;
  std::int64_t cols;
  double eps;
};

// A stretch of a row whose chunks an int counts.
constexpr std::int64_t kStretchChunks = std::int64_t{1} << 26;
template <class T>
struct Stretch {
  RowShape<T> shape;
  RowReader x;
  char* y;
  std::int64_t column;  // the first
};
template <class T>
__device__ __forceinline__ std::int64_t stretches_of(const ForwardStreamArgs& a, std::int64_t r) {
  const int shift = shift_of<T>(a.y + r * a.cols * static_cast<std::int64_t>(sizeof(T)));
  return (chunks_of<T>(a.cols, shift) + kStretchChunks - 1) / kStretchChunks;
}
template <class T>
__device__ __forceinline__ Stretch<T> stretch_of(const ForwardStreamArgs& a, std::int64_t r,
                                                 std::int64_t index) {
  constexpr std::int64_t kSize = sizeof(T), kColumns = kStretchChunks * kElements<T>;
  char* y = a.y + r * a.cols * kSize;
  const int row_shift = shift_of<T>(y), shift = index == 0 ? row_shift : 0;
  Stretch<T> stretch;
  stretch.column = index == 0 ? 0 : index * kColumns - row_shift;
  const std::int64_t left = a.cols - stretch.column;
  stretch.shape =
      RowShape<T>(shift, static_cast<int>(left < kColumns - shift ? left : kColumns - shift));
  stretch.x = reader_of<T>(a.x, a.x.row(r) + stretch.column * kSize, stretch.shape);
  stretch.y = y + (stretch.column - shift) * kSize;
  return stretch;
}

template <class T>
__device__ __forceinline__ void load_batch(Packet (&x)[kBatch], const Stretch<T>& stretch, int v) {
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll
  for (int u = 0; u < kBatch; ++u) x[u] = stretch.x.load_whole(v + u * threads);
  if (stretch.x.has_rest(stretch.shape)) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      stretch.x.load_rest(x[u], v + u * threads, stretch.shape);
    }
  }
}

// Σ(x − origin) and Σ(x − origin)² of this thread's part of the row.
template <class T>
__device__ __forceinline__ void moments_about(const ForwardStreamArgs& a, std::int64_t r,
                                              std::int64_t stretches, accumulate_t<T> origin,
                                              double& sum, double& squares) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  const int threads = static_cast<int>(blockDim.x);
  sum = squares = 0;
  for (std::int64_t index = 0; index < stretches; ++index) {
    const Stretch<T> stretch = stretch_of<T>(a, r, index);
    const RowShape<T>& shape = stretch.shape;
    const int chunks = shape.chunks();
#pragma unroll 1
    for (int v = static_cast<int>(threadIdx.x); v < chunks; v += kBatch * threads) {
      Packet x[kBatch];
      load_batch(x, stretch, v);
      A s[4] = {}, q[4] = {};
      int count = 0;
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        A d[E];
#pragma unroll
        for (int i = 0; i < E; ++i) d[i] = element<T>(x[u], i) - origin;
        shape.mask(d, v + u * threads);
        count += shape.count(v + u * threads);
#pragma unroll
        for (int i = 0; i < E; ++i) s[i % 4] += d[i];
      }
      const A batch_sum = (s[0] + s[1]) + (s[2] + s[3]), n = static_cast<A>(count);
      const Mean<A> mean = mean_of(origin, batch_sum, n);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        A d[E];
#pragma unroll
        for (int i = 0; i < E; ++i) d[i] = mean.centred(element<T>(x[u], i));
        shape.mask(d, v + u * threads);
#pragma unroll
        for (int i = 0; i < E; ++i) q[i % 4] += d[i] * d[i];
      }
      // Σd² = Σ(d − m)² + m(2Σd − nm), whatever m is.
      const double m = batch_sum / n, batch = batch_sum;
      sum += batch;
      squares += static_cast<double>((q[0] + q[1]) + (q[2] + q[3])) + m * (2 * batch - n * m);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kMaxThreads) forward_stream_kernel(ForwardStreamArgs args) {
  using A = accumulate_t<T>;
  constexpr int E = kElements<T>;
  const int threads = static_cast<int>(blockDim.x);
  BlockGroup<double> group;
  for (std::int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    const ForwardStreamArgs& a = reread(args);
    const double cols = static_cast<double>(a.cols);
    const T* elements = reinterpret_cast<const T*>(a.x.row(r));
    const std::int64_t stretches = stretches_of<T>(a, r);
    A origin = to_accumulate(elements[0]);
    double sum, squares;
    moments_about<T>(a, r, stretches, origin, sum, squares);
    group.sum2(sum, squares);
    if constexpr (sizeof(T) == 8) {
      // No wider type takes up what cancels in squares − sum²/N: once more, about the mean.
      origin += sum / cols;
      if (is_finite(origin)) {
        moments_about<T>(a, r, stretches, origin, sum, squares);
        group.sum2(sum, squares);
      } else {
        origin = to_accumulate(elements[0]);
      }
    }
    // mean = origin + offset
    const double offset = sum / cols, centred = squares - sum * offset;
    Mean<A> mean;
    mean.high = static_cast<A>(origin + offset);
    mean.low = static_cast<A>((static_cast<double>(origin) - mean.high) + offset);
    A rstd;
    const A row_squares =
        is_finite(squares) ? static_cast<A>(centred < 0 ? 0 : centred) : static_cast<A>(squares);
    if (!is_finite(static_cast<A>(sum)) || scale_of_squares(row_squares, a.eps) != A{1}) {
      const auto row = statistics_of_extreme_row<T>(
          elements, a.cols, group.lane, group.lanes, a.eps,
          [&](A value) { return static_cast<A>(group.sum(static_cast<double>(value))); });
      mean = row.mean;
      rstd = row.rstd;
    } else {
      rstd = static_cast<A>(1 / sqrt((centred < 0 ? 0 : centred) / cols + a.eps));
    }
    if (threadIdx.x == 0) {
      static_cast<A*>(a.mean)[r] = mean.high;
      static_cast<A*>(a.rstd)[r] = rstd;
    }

    // Backwards: the end of the row was read last, and is the likeliest to be in a cache.
    const RowScale<A> normalise = scale_of(mean, rstd);
    for (std::int64_t index = stretches - 1; index >= 0; --index) {
      const ForwardStreamArgs& again = reread(args);
      const Stretch<T> stretch = stretch_of<T>(again, r, index);
      const RowShape<T>& shape = stretch.shape;
      const auto parameter = [&](Parameter p) {
        const std::int64_t size = p.wide ? sizeof(A) : sizeof(T);
        if (p.data != nullptr) p.data = static_cast<const char*>(p.data) + stretch.column * size;
        return p;
      };
      const Parameter weight = parameter(again.weight), bias = parameter(again.bias);
      const int steps = (shape.chunks() + kBatch * threads - 1) / (kBatch * threads);
#pragma unroll 1
      for (int step = steps - 1; step >= 0; --step) {
        const int v = step * kBatch * threads + static_cast<int>(threadIdx.x);
        Packet x[kBatch];
        load_batch(x, stretch, v);
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
          ParameterPackets<T> raw_weight, raw_bias;
          raw_weight.request(weight, 1, v + u * threads, shape);
          raw_bias.request(bias, 0, v + u * threads, shape);
          A w[E], b[E], y[E];
          raw_weight.take(weight, w);
          raw_bias.take(bias, b);
#pragma unroll
          for (int i = 0; i < E; ++i) {
            y[i] = normalise.normalised(element<T>(x[u], i)) * w[i] + b[i];
          }
          shape.store(stretch.y, v + u * threads, pack<T>(y));
        }
      }
    }
  }
}

}  // namespace

template <class T>
hipError_t forward_stream(const ForwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  const bool wide = p.weight != p.x;
  const ForwardStreamArgs kernel_args = {
      .x = make_rows(args.x, args.x_stride, p.rows, p.cols, sizeof(T)),
      .y = static_cast<char*>(args.y),
      .weight = {args.weight, wide},
      .bias = {args.bias, wide},
      .mean = args.mean,
      .rstd = args.rstd,
      .rows = p.rows,
      .cols = p.cols,
      .eps = args.eps,
  };
  const Grid grid = {.blocks = launch.plan.tasks,
                     .threads = launch.plan.threads,
                     .lds_bytes = static_cast<std::size_t>(kRowLdsBytes),
                     .stream = static_cast<hipStream_t>(launch.stream)};
  return launch_kernel(forward_stream_kernel<T>, grid, kernel_args);
}

template hipError_t forward_stream<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);

}  // namespace hipnorm::gpu
