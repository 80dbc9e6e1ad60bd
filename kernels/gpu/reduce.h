// Sums over waves and blocks, in a fixed order, the same bits in every lane. The wave's sum comes
// from CUB on NVIDIA and rocPRIM on AMD; what neither has (sub-waves of a width known at run time,
// all-lane block sums with one barrier) is ours.
#pragma once

#include "kernels/gpu/platform.h"

#if defined(HIPNORM_EMULATED)
#elif defined(__CUDACC__)
#include <cub/warp/warp_reduce.cuh>
#else
#include <rocprim/warp/warp_reduce.hpp>
#endif

namespace hipnorm::gpu {

// The portable version: what the emulator runs, and what the tests compare the library's with.
// `width` lanes (a power of two ≤ kWave) that lie together; every group of them gets its own sum.
template <class A>
__device__ __forceinline__ A shuffle_sum(A value, int width = kWave) {
  for (int mask = width / 2; mask > 0; mask /= 2) value += __shfl_xor(value, mask, kWave);
  return value;
}

// Sum over the wave, in every lane.
template <class A>
__device__ __forceinline__ A wave_sum(A value) {
#if defined(HIPNORM_EMULATED)
  return shuffle_sum(value);
#elif defined(__CUDACC__)
  typename cub::WarpReduce<A>::TempStorage unused;  // empty: CUB shuffles here
  return __shfl(cub::WarpReduce<A>(unused).Sum(value), 0, kWave);
#else
  typename rocprim::warp_reduce<A, kWave, true>::storage_type storage;
  rocprim::warp_reduce<A, kWave, true>().reduce(value, value, storage);
  return value;
#endif
}

// Sums of two values over a wave: 1 + log2(kWave) + 1 shuffles instead of 2·log2(kWave). Half of
// the lanes go on with one value, half with the other.
template <class A>
__device__ __forceinline__ void wave_sum2(A& a, A& b) {
  const bool upper = threadIdx.x & (kWave / 2);
  const A sent = upper ? a : b;
  A kept = upper ? b : a;
  kept += __shfl_xor(sent, kWave / 2, kWave);
#pragma unroll
  for (int mask = kWave / 4; mask > 0; mask /= 2) kept += __shfl_xor(kept, mask, kWave);
  const A other = __shfl_xor(kept, kWave / 2, kWave);
  a = upper ? other : kept;
  b = upper ? kept : other;
}

// Waves of the largest block.
inline constexpr int kMaxWaves = 1024 / 32;

// Sum over the block, in every thread. `slots` has room for 2 · kMaxWaves values; `parity`
// alternates between 0 and 1 from call to call, which makes one barrier a call enough: a thread
// cannot reach the next call with this parity before all have read this one's slots.
template <class A>
__device__ __forceinline__ A block_sum(A value, Lds<A> slots, int parity) {
  value = wave_sum(value);
  const int waves = static_cast<int>(blockDim.x) / kWave;
  if (waves == 1) return value;
  Lds<A> slot = slots + parity * kMaxWaves;
  if (threadIdx.x % kWave == 0) slot[threadIdx.x / kWave] = value;
  __syncthreads();
  A sum = slot[0];
  for (int w = 1; w < waves; ++w) sum += slot[w];
  return sum;
}
// Two sums for one barrier; `slots` has room for 4 · kMaxWaves values.
template <class A>
__device__ __forceinline__ void block_sum2(A& a, A& b, Lds<A> slots, int parity) {
  wave_sum2(a, b);
  const int waves = static_cast<int>(blockDim.x) / kWave;
  if (waves == 1) return;
  Lds<A> slot = slots + parity * 2 * kMaxWaves;
  if (threadIdx.x % kWave == 0) {
    slot[2 * (threadIdx.x / kWave)] = a;
    slot[2 * (threadIdx.x / kWave) + 1] = b;
  }
  __syncthreads();
  a = slot[0];
  b = slot[1];
  for (int w = 1; w < waves; ++w) {
    a += slot[2 * w];
    b += slot[2 * w + 1];
  }
}

}  // namespace hipnorm::gpu
