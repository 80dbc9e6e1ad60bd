// forward_row on AMD where rows are whole packets of 16 bytes: persistent, a block a row, the row
// in registers, the next row's loads under way all the time.
//
// A row is loaded in place: as soon as a packet has been written, its registers take the next
// row's. The first kNext packets have registers of their own and are asked for before the sums, so
// that loads are under way across both. Bounds are the buffer's: no masks but one for each packet
// where zeros beyond the row would count. Without those of unaligned rows 26 packets fit 256
// registers: 103008 bf16 on 512 threads.
#include "kernels/gpu/buffer.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/instance_of.h"
#include "kernels/gpu/launchers.h"
#include "kernels/gpu/prepare.h"
#include "kernels/gpu/statistics.h"

namespace hipnorm::gpu {
namespace {

struct ForwardPacketsArgs {
  const char* x;
  std::int64_t x_stride;  // bytes
  char* y;
  const void* weight;  // null: absent
  const void* bias;
  float* mean;
  float* rstd;
  std::int64_t rows;
  int cols;
  double eps;
};

// Parameters of one packet: kPackets of them for the columns of one packet of x.
template <class T, bool kWide>
struct ParameterBuffer {
  static constexpr int E = kElements<T>;
  static constexpr int kPackets = kWide ? E / kElements<float> : 1;
  struct Values {
    Packet packet[kPackets];
    __device__ __forceinline__ float operator[](int i) const {
      if constexpr (kWide) return element<float>(packet[i / 4], i % 4);
      return element<T>(packet[0], i);
    }
  };
  Buffer buffer;
  // `any`: readable memory, where there are no parameters.
  __device__ __forceinline__ ParameterBuffer(const void* parameters, const void* any, int cols)
      : buffer(parameters != nullptr ? parameters : any,
               parameters != nullptr ? cols * static_cast<int>(kWide ? 4 : sizeof(T)) : 0) {}
  // Of the packet at byte `offset` of the row.
  __device__ __forceinline__ Values load(int offset) const {
    Values values;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      values.packet[k] = buffer.load(offset * kPackets + 16 * k);
    }
    return values;
  }
};

template <class T, int V, bool kWide>
__device__ __forceinline__ void forward_packets(const ForwardPacketsArgs& args) {
  constexpr int E = kElements<T>, kNext = V < 4 ? V : 4;
  // AMD: a wait for one load waits for all older ones, so parameters are asked for as far ahead as
  // the next row's packets may stay under way.
  constexpr int kAhead = V < 3 ? V : 3;
  BlockGroup<float> group;
  const int step = static_cast<int>(gridDim.x), stride = static_cast<int>(blockDim.x) * 16;
  const int bytes = args.cols * static_cast<int>(sizeof(T));
  int lane = static_cast<int>(threadIdx.x) * 16;
  const auto row_of = [bytes](const ForwardPacketsArgs& a, std::int64_t r) {
    const bool here = r < a.rows;
    return Buffer(a.x + (here ? r : 0) * a.x_stride, here ? bytes : 0);
  };
  const auto first_of = [](const ForwardPacketsArgs& a, std::int64_t r) {
    return load_uniform_first<T>(a.x + (r < a.rows ? r : 0) * a.x_stride);
  };

  Packet x[V], next[kNext];
  std::int64_t r = blockIdx.x;
  {
    const Buffer row = row_of(args, r), nowhere(args.y, 0);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      // Dropped stores: the loop is entered with as many accesses under way as it has when it comes
      // round. AMD waits for a number of them, the least of both ways in.
#pragma unroll
      for (int k = 0; k < (v < kNext ? 0 : 3); ++k) nowhere.store(lane, zero_packet());
      (v < kNext ? next[v] : x[v]) = row.load(lane + v * stride);
      schedule_here();
    }
  }
  float next_first = first_of(args, r);

  for (; r < args.rows; r += step) {
    const ForwardPacketsArgs& a = reread(args);
    const float first = next_first;
    const Buffer following = row_of(a, r + step);
    next_first = first_of(a, r + step);
    schedule_here();

    // Four chains: roundings of 16-bit elements repeat, and a chain should be short.
    float s[4] = {};
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < kNext) {
        x[v] = copy_here(next[v]);
        next[v] = following.load(lane + v * stride);
      }
      const float origin = lane + v * stride < bytes ? first : 0;
#pragma unroll
      for (int i = 0; i < E; ++i) s[i % 4] += element<T>(x[v], i) - origin;
      pin(s);
      schedule_here();
    }
    const float cols = static_cast<float>(a.cols);
    const float sum = group.sum((s[0] + s[1]) + (s[2] + s[3]));
    Mean<float> mean = mean_of(first, sum, cols);

    float q[4] = {};
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      forget_unpacked(x[v]);
      const bool here = lane + v * stride < bytes;
      const Mean<float> centre = {here ? mean.high : 0, here ? mean.low : 0};
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float d = centre.centred(element<T>(x[v], i));
        q[i % 4] += d * d;
      }
      pin(q);
      schedule_here();
    }
    const ParameterBuffer<T, kWide> weights(a.weight, a.x, a.cols), biases(a.bias, a.x, a.cols);
    typename ParameterBuffer<T, kWide>::Values w[kAhead], b[kAhead];
    forget(lane);
#pragma unroll
    for (int v = 0; v < kAhead; ++v) {
      w[v] = weights.load(lane + v * stride);
      b[v] = biases.load(lane + v * stride);
    }
    schedule_here();
    const float squares = group.sum((q[0] + q[1]) + (q[2] + q[3]));
    float rstd;
    if (!is_finite(sum) || scale_of_squares(squares, a.eps) != 1) {
      const auto row = statistics_of_extreme_row<T>(
          reinterpret_cast<const T*>(a.x + r * a.x_stride), a.cols, group.lane, group.lanes, a.eps,
          [&](float value) { return group.sum(value); });
      mean = row.mean;
      rstd = row.rstd;
    } else {
      rstd = rstd_of(squares, cols, 1.0f, a.eps);
    }
    if (group.lane == 0) {
      a.mean[r] = mean.high;
      a.rstd[r] = rstd;
    }

    const RowScale<float> normalise = scale_of(mean, rstd);
    const Buffer y(a.y + r * bytes, bytes);
    const bool has_weight = a.weight != nullptr;
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      forget_unpacked(x[v]);
      float out[E];
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float weight = has_weight ? w[v % kAhead][i] : 1;
        out[i] = normalise.normalised(element<T>(x[v], i)) * weight + b[v % kAhead][i];
      }
      if (v + kAhead < V) {
        w[v % kAhead] = weights.load(lane + (v + kAhead) * stride);
        b[v % kAhead] = biases.load(lane + (v + kAhead) * stride);
      }
      y.store(lane + v * stride, pack<T>(out));
      if (v >= kNext) x[v] = following.load(lane + v * stride);
      schedule_here();
    }
  }
}

template <class T, int V, bool kWide>
__global__ void __launch_bounds__(launch_bound(kForwardPackets, V))
    forward_packets_kernel(ForwardPacketsArgs args) {
  forward_packets<T, V, kWide>(args);
}

using Kernel = void (*)(ForwardPacketsArgs);
template <class T, int V>
Kernel packets_kernel(const Problem& p) {
  if constexpr (sizeof(T) == 2) {
    if (p.weight == DType::f32) return forward_packets_kernel<T, V, true>;
  }
  return forward_packets_kernel<T, V, false>;
}

}  // namespace

template <class T>
hipError_t forward_packets(const ForwardArgs& args, const Launch& launch) {
  if constexpr (sizeof(T) <= 4) {
    const Problem& p = launch.problem;
    const ForwardPacketsArgs kernel_args = {
        .x = static_cast<const char*>(args.x),
        .x_stride = args.x_stride * std::int64_t{sizeof(T)},
        .y = static_cast<char*>(args.y),
        .weight = args.weight,
        .bias = args.bias,
        .mean = static_cast<float*>(args.mean),
        .rstd = static_cast<float*>(args.rstd),
        .rows = p.rows,
        .cols = static_cast<int>(p.cols),
        .eps = args.eps,
    };
    const Grid grid = {.blocks = launch.plan.tasks,
                       .threads = launch.plan.threads,
                       .lds_bytes = kRowLdsBytes,
                       .stream = static_cast<hipStream_t>(launch.stream)};
    return with_vectors<T, kForwardPackets>(launch.plan.vectors, [&]<int V>() {
      return launch_kernel(packets_kernel<T, V>(p), grid, kernel_args);
    });
  } else {
    return hipErrorInvalidConfiguration;
  }
}

template <class T>
int forward_packets_resident(const Plan& plan, const Problem& problem, const Device& device) {
  int blocks = 0;
  if constexpr (sizeof(T) <= 4) {
    static_cast<void>(with_vectors<T, kForwardPackets>(plan.vectors, [&]<int V>() {
      blocks = resident_clusters(packets_kernel<T, V>(problem), device, plan.threads,
                                 static_cast<std::size_t>(plan.lds_bytes));
      return hipSuccess;
    }));
  }
  return blocks;
}

template hipError_t forward_packets<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);
template int forward_packets_resident<HIPNORM_ELEMENT>(const Plan&, const Problem&, const Device&);

}  // namespace hipnorm::gpu
