// backward_row on AMD where rows are whole packets of 16 bytes: persistent, a block a row; row,
// weights and the sums for dweight and dbias in registers, the next row's loads under way all the
// time.
//
// As in forward_packets a row is loaded in place, packet by packet as dx is written, but for its
// first kNext packets of x and dy, which have registers of their own and are asked for before the
// sums. Of 256 registers a packet of 16-bit elements takes 16 for its sums, 8 for x and dy, 4 for
// the weights, and 8 where it is ahead: 5 packets fit, 20480 columns on 512 threads.
//
// On gfx950 up to 10 do: weights and all but one or two packets of x lie in LDS, each lane's in a
// place of its own. What is in LDS of the next row is asked for when the last of this one's has
// been read: loads to LDS are waited for all together (lds_load.h).
#include "kernels/gpu/backward_row.h"
#include "kernels/gpu/buffer.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/instance_of.h"
#include "kernels/gpu/lds_load.h"
#include "kernels/gpu/prepare.h"

namespace hipnorm::gpu {
namespace {

struct BackwardPacketsArgs {
  const char* dy;
  const char* x;           // null: only dbias is asked for
  std::int64_t dy_stride;  // bytes
  std::int64_t x_stride;
  const float* mean;
  const float* rstd;
  Parameter weight;
  char* dx;        // null: not asked for
  float* dweight;  // [blocks, pitch]; null: not asked for
  float* dbias;
  std::int64_t rows;
  std::int64_t pitch;
  int cols;
};

// Packets of the next row that have registers of their own.
template <class T>
constexpr int packets_ahead(int vectors) {
  if (vectors >= kPacketsInLds && sizeof(T) == 2) return x_in_registers(vectors);
  return vectors < 4 ? vectors : 4;
}

template <class T, int V, bool kWide>
__device__ __forceinline__ void backward_packets(const BackwardPacketsArgs& args) {
  constexpr int E = kElements<T>, kNext = packets_ahead<T>(V);
  constexpr int kParameters = kWide ? E / kElements<float> : 1;  // packets of weights of one of x
  constexpr bool kLds = sizeof(T) == 2 && V >= kPacketsInLds;
  constexpr int kRegisters = kLds ? x_in_registers(V) : V;  // packets of x
  BlockGroup<float> group;
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = kLds ? kThreadsWithLds : static_cast<int>(blockDim.x);
  const int step = static_cast<int>(gridDim.x), stride = threads * 16;
  int lane = thread * 16;
  const Lds<Packet> weight_lds = lds_at<Packet>(kRowLdsBytes);
  const Lds<Packet> x_lds = weight_lds + V * kParameters * threads;
  const auto row_of = [](const BackwardPacketsArgs& a, const char* base, std::int64_t pitch,
                         std::int64_t r) {
    const bool here = base != nullptr && r < a.rows;
    return Buffer(base + (here ? r : 0) * pitch, here ? a.cols * static_cast<int>(sizeof(T)) : 0);
  };
  // 0 beyond the last row, where dy is 0, too: no row's NaN may come from there.
  const auto saved_of_row = [](const BackwardPacketsArgs& a, std::int64_t r) -> Saved<float> {
    const bool here = r < a.rows;
    const float mean = load_uniform(a.mean, here ? r : 0);
    const float rstd = load_uniform(a.rstd, here ? r : 0);
    return {here ? mean : 0, here ? rstd : 0};
  };

  struct Weights {
    Packet packet[kParameters];
    __device__ __forceinline__ float operator[](int i) const {
      if constexpr (kWide) return element<float>(packet[i / 4], i % 4);
      return element<T>(packet[0], i);
    }
  };
  Weights weights[kLds ? 1 : V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    Weights& own = weights[kLds ? 0 : v];
    const int column = (lane + v * stride) / 16 * E;
    float w[E];
    load_parameter<T>(args.weight, {column, 0, column < args.cols ? E : 0}, 1, w);
#pragma unroll
    for (int k = 0; k < kParameters; ++k) {
      if constexpr (kWide) {
        float part[kElements<float>];
#pragma unroll
        for (int i = 0; i < kElements<float>; ++i) part[i] = w[k * kElements<float> + i];
        own.packet[k] = pack<float>(part);
      } else {
        own.packet[k] = pack<T>(w);
      }
      if (kLds) weight_lds[(v * kParameters + k) * threads + thread] = own.packet[k];
    }
  }
  const auto weights_of = [&](int v) {
    Weights w;
#pragma unroll
    for (int k = 0; k < kParameters; ++k) {
      if (kLds) {
        w.packet[k] = weight_lds[(v * kParameters + k) * threads + thread];
      } else {
        forget_unpacked(weights[kLds ? 0 : v].packet[k]);
        w.packet[k] = weights[kLds ? 0 : v].packet[k];
      }
    }
    return w;
  };
  // Of this row, in registers or in LDS.
  const auto x_of = [&](Packet(&x)[kRegisters], int v) {
    if (v >= kRegisters) return x_lds[(v - kRegisters) * threads + thread];
    forget_unpacked(x[v]);
    return x[v];
  };

  Packet x[kRegisters], dy[V], next_x[kNext], next_dy[kNext];
  std::int64_t r = blockIdx.x;
  {
    const Buffer x_row = row_of(args, args.x, args.x_stride, r);
    const Buffer dy_row = row_of(args, args.dy, args.dy_stride, r);
    const Buffer nowhere(args.dy, 0);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v >= kRegisters) {
        load_to_lds(x_row, lane + v * stride, x_lds + (v - kRegisters) * threads, thread);
      } else {
        (v < kNext ? next_x[v] : x[v]) = x_row.load(lane + v * stride);
      }
      (v < kNext ? next_dy[v] : dy[v]) = dy_row.load(lane + v * stride);
      // A dropped store: the loop is entered with as many accesses under way as it has when it
      // comes round. AMD waits for a number of them, the least of both ways in.
      nowhere.store(lane, zero_packet());
      schedule_here();
    }
  }
  Saved<float> next_saved = saved_of_row(args, r);

  float dweight[V][E] = {}, dbias[V][E] = {};
  for (; r < args.rows; r += step) {
    const BackwardPacketsArgs& a = reread(args);
    const Saved<float> usable = usable_part(next_saved);
    // Of x̂. Beyond the row x and dy are 0, and 0 times an overflow of −mean·rstd would be NaN. It
    // overflows in constant rows only, where x̂ is 0.
    const bool overflows = fabsf(usable.mean * usable.rstd) > Extremes<float>::kMax;
    const Saved<float> saved = {uniform(usable.mean), uniform(overflows ? 0 : usable.rstd)};
    const float rstd = uniform(usable.rstd);
    const Buffer x_next = row_of(a, a.x, a.x_stride, r + step);
    const Buffer dy_next = row_of(a, a.dy, a.dy_stride, r + step);
    next_saved = saved_of_row(a, r + step);
    schedule_here();

    float s1 = 0, s2 = 0;
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < kNext) {
        x[v] = copy_here(next_x[v]);
        dy[v] = copy_here(next_dy[v]);
        next_x[v] = x_next.load(lane + v * stride);
        next_dy[v] = dy_next.load(lane + v * stride);
      }
      forget_unpacked(dy[v]);
      const Packet values = x_of(x, v);
      const Weights w = weights_of(v);
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float d = element<T>(dy[v], i);
        const float normalised = saved.normalised(element<T>(values, i));
        const float gradient = product(d, w[i]);
        dbias[v][i] += d;
        dweight[v][i] += d * normalised;
        s1 += gradient;
        s2 += gradient * normalised;
      }
      pin(dweight[v]);
      pin(dbias[v]);
      schedule_here();
    }
    group.sum2(s1, s2);

    const float cols = static_cast<float>(a.cols);
    const float c1 = uniform(s1 / cols), c2 = uniform(s2 / cols);
    const Buffer dx = row_of(a, a.dx, std::int64_t{a.cols} * std::int64_t{sizeof(T)}, r);
    forget(lane);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      forget_unpacked(dy[v]);
      const Packet values = x_of(x, v);
      const Weights w = weights_of(v);
      float out[E];
#pragma unroll
      for (int i = 0; i < E; ++i) {
        const float gradient = product(element<T>(dy[v], i), w[i]);
        const float normalised = saved.normalised(element<T>(values, i));
        out[i] = (gradient - c1 - normalised * c2) * rstd;
      }
      dx.store(lane + v * stride, pack<T>(out));
      if (v >= kNext) {
        if (v < kRegisters) x[v] = x_next.load(lane + v * stride);
        dy[v] = dy_next.load(lane + v * stride);
      }
      schedule_here();
    }
#pragma unroll
    for (int v = kRegisters; v < V; ++v) {
      load_to_lds(x_next, lane + v * stride, x_lds + (v - kRegisters) * threads, thread);
    }
  }

  constexpr int kSums = E / kElements<float>;  // packets of sums of one of x
  const auto write = [&](float* parts, const float (&sums)[V][E]) {
    if (parts == nullptr) return;
    const Buffer row(parts + std::int64_t{blockIdx.x} * args.pitch, args.cols * 4);
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        float part[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) part[i] = sums[v][k * 4 + i];
        row.store((lane + v * stride) * kSums + 16 * k, pack<float>(part));
      }
    }
  };
  write(args.dweight, dweight);
  write(args.dbias, dbias);
}

template <class T>
inline constexpr const auto& kInstances = kBackwardPackets;
template <>
[[maybe_unused]] inline constexpr const auto& kInstances<float> = kBackwardPacketsF32;

template <class T, int V, bool kWide>
__global__ void __launch_bounds__(launch_bound(kInstances<T>, V))
    backward_packets_kernel(BackwardPacketsArgs args) {
  // f32 weights of 9 packets of 16-bit elements fit no LDS.
  if constexpr (sizeof(T) == 4 || V < kPacketsInLds || (kLargeLds && !(kWide && V >= 9))) {
    backward_packets<T, V, kWide>(args);
  } else {
    __builtin_trap();  // validate() has refused it: more LDS than the device has
  }
}

using Kernel = void (*)(BackwardPacketsArgs);
template <class T, int V>
Kernel packets_kernel(const Problem& p) {
  if constexpr (sizeof(T) == 2) {
    if (p.weight == DType::f32) return backward_packets_kernel<T, V, true>;
  }
  return backward_packets_kernel<T, V, false>;
}

}  // namespace

template <class T>
hipError_t backward_packets(const BackwardArgs& args, const Launch& launch) {
  if constexpr (sizeof(T) <= 4) {
    const Problem& p = launch.problem;
    char* workspace = static_cast<char*>(args.workspace);
    const auto partial = [&](bool wanted, std::int64_t offset) {
      return wanted ? reinterpret_cast<float*>(workspace + offset) : nullptr;
    };
    const BackwardPacketsArgs kernel_args = {
        .dy = static_cast<const char*>(args.dy),
        .x = p.grads.dx || p.grads.dweight ? static_cast<const char*>(args.x) : nullptr,
        .dy_stride = args.dy_stride * std::int64_t{sizeof(T)},
        .x_stride = args.x_stride * std::int64_t{sizeof(T)},
        .mean = static_cast<const float*>(args.mean),
        .rstd = static_cast<const float*>(args.rstd),
        .weight = {p.grads.dx ? args.weight : nullptr, p.weight != p.x},
        .dx = p.grads.dx ? static_cast<char*>(args.dx) : nullptr,
        .dweight = partial(p.grads.dweight, launch.plan.dweight_offset),
        .dbias = partial(p.grads.dbias, launch.plan.dbias_offset),
        .rows = p.rows,
        .pitch = launch.plan.pitch,
        .cols = static_cast<int>(p.cols),
    };
    const Grid grid = {.blocks = launch.plan.groups,
                       .threads = launch.plan.threads,
                       .lds_bytes = static_cast<std::size_t>(launch.plan.lds_bytes),
                       .stream = static_cast<hipStream_t>(launch.stream)};
    const hipError_t error = with_vectors<T, kInstances<T>>(launch.plan.vectors, [&]<int V>() {
      const Kernel kernel = packets_kernel<T, V>(p);
      const hipError_t prepared = prepare_kernel(kernel, launch.device, grid.lds_bytes);
      return prepared == hipSuccess ? launch_kernel(kernel, grid, kernel_args) : prepared;
    });
    if (error != hipSuccess || !p.grads.columns()) return error;
    return reduce_parts<T>(args, launch);
  } else {
    return hipErrorInvalidConfiguration;
  }
}

template <class T>
int backward_packets_resident(const Plan& plan, const Problem& problem, const Device& device) {
  int blocks = 0;
  if constexpr (sizeof(T) <= 4) {
    static_cast<void>(with_vectors<T, kInstances<T>>(plan.vectors, [&]<int V>() {
      blocks = resident_clusters(packets_kernel<T, V>(problem), device, plan.threads,
                                 static_cast<std::size_t>(plan.lds_bytes));
      return hipSuccess;
    }));
  }
  return blocks;
}

template hipError_t backward_packets<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template int backward_packets_resident<HIPNORM_ELEMENT>(const Plan&, const Problem&, const Device&);

}  // namespace hipnorm::gpu
