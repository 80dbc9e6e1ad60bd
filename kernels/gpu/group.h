// The lanes that share a row: part of a wave, a wave, or a block. Kernels are written once for all.
#pragma once

#include "kernels/gpu/instances.h"
#include "kernels/gpu/reduce.h"

namespace hipnorm::gpu {

// `lanes` lanes of a wave, a power of two. Rows of one wave differ: all lanes of it take part in
// every sum, those without a row, too.
struct WaveGroup {
  static constexpr bool kBlock = false;
  int lanes;
  int lane;
  int index;  // of the block's groups
  int count;  // groups in the block

  __device__ __forceinline__ explicit WaveGroup(int lanes_log2)
      : lanes(1 << lanes_log2),
        lane(static_cast<int>(threadIdx.x) & (lanes - 1)),
        index(static_cast<int>(threadIdx.x) >> lanes_log2),
        count(static_cast<int>(blockDim.x) >> lanes_log2) {}

  template <class A>
  __device__ __forceinline__ A sum(A value) {
    return shuffle_sum(value, lanes);
  }
  template <class A>
  __device__ __forceinline__ void sum2(A& a, A& b) {
    a = shuffle_sum(a, lanes);
    b = shuffle_sum(b, lanes);
  }
};

// All threads of the block; kRowLdsBytes of LDS from its start.
template <class A>
struct BlockGroup {
  static constexpr bool kBlock = true;
  int lanes;
  int lane;
  static constexpr int index = 0;
  static constexpr int count = 1;
  int parity = 0;

  __device__ __forceinline__ explicit BlockGroup(int = 0)
      : lanes(static_cast<int>(blockDim.x)), lane(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ A sum(A value) {
    parity ^= 1;
    return block_sum(value, lds_at<A>(0) + parity * kMaxWaves, parity);  // where sum2's slots are
  }
  __device__ __forceinline__ void sum2(A& a, A& b) {
    parity ^= 1;
    block_sum2(a, b, lds_at<A>(0), parity);
  }
};
static_assert(kRowLdsBytes >= 4 * kMaxWaves * static_cast<int>(sizeof(double)));

template <class T, bool kBlock>
struct GroupOf {
  using type = WaveGroup;
};
template <class T>
struct GroupOf<T, true> {
  using type = BlockGroup<accumulate_t<T>>;
};

}  // namespace hipnorm::gpu
