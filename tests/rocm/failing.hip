// Kernels that the checks of this folder must refuse, under names that they know. Compiled by their
// test alone.
#include "kernels/gpu/platform.h"

namespace hipnorm::gpu {

struct Seeded {
  float* data;
  int count;
};

// 300 values a lane, of blocks that have room for 128.
template <class T, int V, bool kAhead, bool kWide>
__global__ void __launch_bounds__(1024) backward_row_kernel(Seeded args) {
  constexpr int kValues = 300;
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = args.data[i * 1024 + threadIdx.x];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sum += values[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i) args.data[i * 1024 + threadIdx.x] = values[i] * sum;
}

// Two floats at a time, where a packet would have four.
template <class T, int V, bool kAhead, bool kWhole>
__global__ void __launch_bounds__(64) forward_row_kernel(Seeded args) {
  auto* pairs = reinterpret_cast<float2*>(args.data);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < args.count; i += 64) {
    const float2 pair = pairs[i];
    pairs[i] = float2{pair.x + 1, pair.y + 1};
  }
}

// Packets, but a fence of the system's scope between them.
template <class T, int V, bool kWhole>
__global__ void __launch_bounds__(64) forward_wave_kernel(Seeded args) {
  auto* packets = reinterpret_cast<float4*>(args.data);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < args.count; i += 64) {
    const float4 packet = packets[i];
    __threadfence_system();
    packets[i] = float4{packet.x + 1, packet.y + 1, packet.z + 1, packet.w + 1};
  }
}

template __global__ void backward_row_kernel<float, 1, false, false>(Seeded);
template __global__ void forward_row_kernel<float, 1, false, true>(Seeded);
template __global__ void forward_wave_kernel<float, 1, true>(Seeded);

}  // namespace hipnorm::gpu
