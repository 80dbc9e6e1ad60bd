// A kernel that cannot keep its row in registers: 80 values a thread, of which 2048 are to run on a
// unit of 65536 registers. tests/gpu/CMakeLists.txt expects the build to say so.
#include "kernels/gpu/platform.h"

namespace hipnorm::gpu {

struct SpillingArgs {
  float* data;
};

__global__ void __launch_bounds__(1024, 2) too_wide(SpillingArgs args) {
  constexpr int kValues = 80;
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

}  // namespace hipnorm::gpu
