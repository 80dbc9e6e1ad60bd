// What forward_ring and backward_ring share: a group's slices of its rows, the wave that loads
// them, and how the other waves read them.
//
// A group is a cluster of `split` blocks (or one block) and takes rows g, g + groups, … Each of its
// blocks holds the same chunks of all of them. One wave of a block, the loader, keeps `stages`
// steps of rows in flight: bulk copies into LDS. The computing waves go through a step in two
// phases. They sum what they find and post it to all blocks of the cluster. Another wave, the
// finisher, adds up what the cluster's waves have posted: they would each do the same. One step
// later they read the step's packets again, write the output and free the stage. So nobody waits
// for an exchange that has just begun, and no barrier of the block or cluster is in the loop:
//
//   barrier        completes when                          who waits
//   full[stage]    a step's rows have landed               computing waves, before they sum
//   sums[slot]     all waves of the cluster have posted    the finisher
//   ready[stage]   the finisher has the rows' results      computing waves, before they write
//   empty[stage]   all computing waves are done with it    the loader, before it loads again
//
// Slots for posts need no other flow control: a wave posts for step i only after results of step
// i − 2, so after every wave's post for i − 2, and that wave had results of step i − 4: the slots
// up to i − 4 have been read in every block, and there are 2·stages ≥ 4 of them.
#pragma once

#include "kernels/gpu/async.h"
#include "kernels/gpu/prepare.h"
#include "kernels/gpu/ring_layout.h"
#include "kernels/gpu/row.h"
#include "kernels/launch.h"

namespace hipnorm::gpu {

// Of a kernel's arguments, what both kernels need.
struct Ring {
  std::int64_t rows = 0;
  std::int64_t groups = 0;
  const char* out = nullptr;  // the tensor whose rows the chunks follow
  std::int64_t out_stride = 0;
  std::int64_t out_step = 0;   // from a group's row to its next: groups · out_stride
  unsigned line_step[2] = {};  // the same of x and dy, modulo kLineBytes
  int cols = 0;
  int split = 1;
  int stages = 0;
  int waves = 0;  // of a block that compute
  int slice = 0;  // the rest: RingLayout
  int row_bytes = 0;
  int results = 0;
  int values = 0;
  int slots = 0;
  int slot_bytes = 0;
  int counts = 0;
  int barriers = 0;
};

// Strides in elements. Forward: no dy.
inline Ring make_ring(const Launch& launch, const void* out, std::int64_t out_stride,
                      std::int64_t x_stride, std::int64_t dy_stride = 0) {
  const Problem& problem = launch.problem;
  const bool backward = problem.is_backward();
  const RingShape shape{.backward = backward,
                        .chunks = chunks_of_row(problem),
                        .threads = launch.config.threads,
                        .rows = backward ? launch.config.rows_per_block : 1,
                        .stages = launch.config.stages,
                        .split = launch.config.split,
                        .wave = launch.device.wave_size};
  const RingLayout layout = ring_layout(shape);
  const std::int64_t bytes =
      launch.plan.groups * size_of(problem.x);  // of a group's step, stride 1
  const auto line_step = [&](std::int64_t stride) {
    return static_cast<unsigned>(bytes * stride % kLineBytes);
  };
  return {.rows = problem.rows,
          .groups = launch.plan.groups,
          .out = static_cast<const char*>(out),
          .out_stride = out_stride * size_of(problem.x),
          .out_step = bytes * out_stride,
          .line_step = {line_step(x_stride), line_step(dy_stride)},
          .cols = static_cast<int>(problem.cols),
          .split = shape.split,
          .stages = shape.stages,
          .waves = shape.threads / shape.wave,
          .slice = static_cast<int>(layout.slice),
          .row_bytes = static_cast<int>(layout.row_bytes),
          .results = static_cast<int>(layout.results),
          .values = static_cast<int>(layout.values),
          .slots = static_cast<int>(layout.slots),
          .slot_bytes = static_cast<int>(layout.slot_bytes),
          .counts = static_cast<int>(layout.counts),
          .barriers = static_cast<int>(layout.barriers)};
}

// The same number, but not to the compiler: what is computed from it stays where it is, in ordinary
// registers. Else what rare partial packets need would be found before the loop and held, and the
// loop's own bookkeeping would go through the uniform datapath, whose latency is three times as
// long.
__device__ __forceinline__ int opaque(int x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// A block's LDS. On sm_90 the compiler finds the start of LDS anew wherever it is used, from a
// special register that takes some 30 cycles to read: here it is read once.
struct Memory {
#if defined(HIPNORM_EMULATED)
  template <class T>
  Lds<T> at(int offset) const {
    return lds_at<T>(static_cast<std::size_t>(offset));
  }
#elif defined(__CUDACC__)
  std::uint32_t base;
  __device__ __forceinline__ Memory() {
    base = lds_address(lds_at<char>(0));
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(base));
#endif
  }
  template <class T>
  __device__ __forceinline__ Lds<T> at(int offset) const {
    return static_cast<T*>(__cvta_shared_to_generic(base + static_cast<unsigned>(offset)));
  }
#endif
};

// What the finisher finds out about a row. Forward: RowScale; backward: mean, rstd,
// shift, slope (backward_ring.hip).
struct alignas(16) RowResult {
  float value[4];
};
static_assert(sizeof(RowResult) == kResultBytes && sizeof(Pair) == kPairBytes);

// Where a step stands: its slot of sums, step mod 2·stages, which also tells its stage, step mod
// stages, and the parity of that.
struct Turn {
  int slot = 0;
  unsigned slot_parity = 0;

  __device__ __forceinline__ int stage(const Ring& ring) const {
    return slot < ring.stages ? slot : slot - ring.stages;
  }
  __device__ __forceinline__ unsigned stage_parity(const Ring& ring) const {
    return slot < ring.stages ? 0 : 1;
  }
  __device__ __forceinline__ Turn next(const Ring& ring) const {
    return slot + 1 < 2 * ring.stages ? Turn{slot + 1, slot_parity} : Turn{0, slot_parity ^ 1};
  }
};

// A block's part of its group's rows.
struct Slice {
  int group;
  int rows;  // of the group
  int rank;
  int shift;  // of the output's rows: the same for all rows of a group
  int begin;  // chunks begin … begin + count − 1
  int count;
};

// What all waves of a block know.
template <class T>
struct Block {
  const Ring& ring;
  Slice slice;
  Memory memory;

  __device__ __forceinline__ explicit Block(const Ring& r) : ring(r) {
    slice.group = static_cast<int>(blockIdx.x) / ring.split;
    slice.rank = static_cast<int>(blockIdx.x % static_cast<unsigned>(ring.split));
    slice.rows = slice.group < ring.rows
                     ? static_cast<int>((ring.rows - slice.group + ring.groups - 1) / ring.groups)
                     : 0;
    slice.shift = shift_of<T>(ring.out + slice.group * ring.out_stride);
    slice.begin = slice.rank * ring.slice;
    const int left = static_cast<int>(chunks_of<T>(ring.cols, slice.shift)) - slice.begin;
    slice.count = left < 0 ? 0 : left < ring.slice ? left : ring.slice;
  }

  __device__ __forceinline__ std::int64_t row(int k) const { return slice.group + k * ring.groups; }
  // Columns before chunk v, of all chunks of a row.
  __device__ __forceinline__ int columns_before(int v) const {
    const int columns = v * kElements<T> - slice.shift;
    return columns < 0 ? 0 : columns < ring.cols ? columns : ring.cols;
  }

  __device__ __forceinline__ Lds<AsyncBarrier> full(int stage) const { return barrier(stage); }
  __device__ __forceinline__ Lds<AsyncBarrier> empty(int stage) const {
    return barrier(ring.stages + stage);
  }
  __device__ __forceinline__ Lds<AsyncBarrier> ready(int stage) const {
    return barrier(2 * ring.stages + stage);
  }
  __device__ __forceinline__ Lds<AsyncBarrier> sums(int slot) const {
    return barrier(3 * ring.stages + slot);
  }
  __device__ __forceinline__ Lds<AsyncBarrier> barrier(int i) const {
    return memory.template at<AsyncBarrier>(ring.barriers + i * 8);
  }
  // `row`: stage · rows of a step + row of the step.
  __device__ __forceinline__ Lds<Pair> values(int row) const {
    return memory.template at<Pair>(ring.values + row * 8);
  }
  __device__ __forceinline__ Lds<RowResult> result(int row) const {
    return memory.template at<RowResult>(ring.results + row * 16);
  }

  // Before the loop: barriers and what else the waves have put into LDS become visible. All waves
  // come here from one place of the program.
  __device__ __forceinline__ void meet() const {
    __syncthreads();
    if (ring.split > 1) {
      cluster_arrive();
      cluster_wait();
    }
  }
};

// Where a block's slice of a row lies in memory, and in LDS. There it keeps its place in a line of
// memory, kLineBytes: of the buffers' 128-byte multiples the first holds its start.
template <class T>
__device__ __forceinline__ std::int64_t slice_offset(const Block<T>& block) {
  return (static_cast<std::int64_t>(block.slice.begin) * kElements<T> - block.slice.shift) *
         static_cast<std::int64_t>(sizeof(T));
}

// Sums of K values (a power of two) over the wave: lane l gets the sum of value l / (kWave / K).
template <int K>
__device__ __forceinline__ float wave_sums(float (&values)[K]) {
  int mask = kWave / 2;
#pragma unroll
  for (int half = K / 2; half > 0; half /= 2) {
    const bool upper = threadIdx.x & static_cast<unsigned>(mask);
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const float sent = upper ? values[k] : values[k + half];
      const float kept = upper ? values[k + half] : values[k];
      values[k] = kept + __shfl_xor(sent, mask, kWave);
    }
    mask /= 2;
  }
#pragma unroll
  for (; mask > 0; mask /= 2) values[0] += __shfl_xor(values[0], mask, kWave);
  return values[0];
}

}  // namespace hipnorm::gpu
