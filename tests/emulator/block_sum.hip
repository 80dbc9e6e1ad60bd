#include "tests/emulator/block_sum.h"

namespace hipnorm::testing {
namespace {

struct Args {
  const std::int64_t* values;
  std::int64_t n;
  std::int64_t* sum;
};

template <int kWave>
__global__ void __launch_bounds__(1024) block_sum_kernel(Args args) {
  const auto waves = gpu::lds_at<std::int64_t>(0);
  std::int64_t sum = 0;
#pragma unroll
  for (std::int64_t i = threadIdx.x; i < args.n; i += blockDim.x) sum += args.values[i];
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) sum += __shfl_xor(sum, mask);
  if (threadIdx.x % kWave == 0) waves[threadIdx.x / kWave] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / kWave; ++w) sum += waves[w];
    *args.sum = sum;
  }
}

}  // namespace

hipError_t block_sum(const std::int64_t* values, std::int64_t n, std::int64_t* sum, int threads) {
  constexpr int kWave = HIPNORM_EMULATED_WAVE;
  return gpu::launch_kernel(block_sum_kernel<kWave>,
                            {.blocks = 1,
                             .threads = threads,
                             .lds_bytes = sizeof(std::int64_t) * std::size_t(threads / kWave)},
                            Args{values, n, sum});
}

}  // namespace hipnorm::testing
