// Sums over waves and blocks, in a fixed order, the same bits in every lane. The wave's sum comes
// from CUB on NVIDIA and rocPRIM on AMD; what neither has (sub-waves of a width known at run time,
// all-lane block sums with one barrier) is ours.
#pragma once

#include "kernels/gpu/packet.h"
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
#pragma unroll
  for (int mask = kWave / 2; mask > 0; mask /= 2) {
    if (mask < width) value += __shfl_xor(value, mask, kWave);
  }
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

// Σ slot[0 … count − 1], count ≤ kMaxWaves, in every thread: eight values at a time, so that the
// LDS latency is paid once for them. `slot` is 16-byte aligned and may be read up to kMaxWaves.
template <class A>
__device__ __forceinline__ A sum_of_slots(Lds<A> slot, int count) {
  constexpr int kEach = kElements<A>;
  const Lds<const Packet> packets = lds_cast<const Packet>(slot);
  A total = 0;
  forget_uniform(count);  // or its 16 comparisons below are kept, two scalar registers each
#pragma unroll
  for (int first = 0; first < 1024 / kWave; first += 8) {
    if (first >= count) break;
    A v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const Packet packet = packets[(first + i) / kEach];
      v[i] = first + i < count ? element<A>(packet, i % kEach) : A{0};
    }
    total += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  return total;
}

// Sum over the block, in every thread. `slots` has room for 2 · kMaxWaves values, 16-byte aligned;
// `parity` alternates between 0 and 1 from call to call, which makes one barrier a call enough: a
// thread cannot reach the next call with this parity before all have read this one's slots.
template <class A>
__device__ __forceinline__ A block_sum(A value, Lds<A> slots, int parity) {
  value = wave_sum(value);
  const int waves = static_cast<int>(blockDim.x) / kWave;
  if (waves == 1) return value;
  Lds<A> slot = slots + parity * kMaxWaves;
  if (threadIdx.x % kWave == 0) slot[threadIdx.x / kWave] = value;
  __syncthreads();
  return sum_of_slots(slot, waves);
}
// Two sums for one barrier; `slots` has room for 4 · kMaxWaves values.
template <class A>
__device__ __forceinline__ void block_sum2(A& a, A& b, Lds<A> slots, int parity) {
  wave_sum2(a, b);
  const int waves = static_cast<int>(blockDim.x) / kWave;
  if (waves == 1) return;
  Lds<A> slot = slots + parity * 2 * kMaxWaves;
  if (threadIdx.x % kWave == 0) {
    slot[threadIdx.x / kWave] = a;
    slot[kMaxWaves + threadIdx.x / kWave] = b;
  }
  __syncthreads();
  a = sum_of_slots(slot, waves);
  b = sum_of_slots(slot + kMaxWaves, waves);
}

}  // namespace hipnorm::gpu
