// The two waves of a block of forward_ring or backward_ring that serve the others (ring.h): one
// loads the rows, the other adds up what the computing waves post. One wave that did both would
// take longer for a step than they do: some 400 instructions one after the other, 1.6 µs (H200).
#pragma once

#include "kernels/gpu/ring.h"

namespace hipnorm::gpu {

// The loader's lane for one row (of R in a step) of one tensor (x, and dy in backward).
template <class T, int kTensors, int R>
struct LoaderLane {
  const Rows& tensor;
  int which;            // tensor
  int r;                // row of the step
  int k;                // of the group: the row to load next
  int before;           // bytes of the slice's first chunk before the row
  int bytes;            // of the slice in the row
  std::uintptr_t next;  // where the slice begins in row k
  std::int64_t step;    // bytes to that of the next step

  __device__ __forceinline__ LoaderLane(const Block<T>& block, const Rows& x, const Rows& dy,
                                        int lane)
      : tensor(kTensors == 2 && lane >= R ? dy : x),
        which(kTensors == 2 && lane >= R ? 1 : 0),
        r(lane % R),
        k(r),
        next(reinterpret_cast<std::uintptr_t>(tensor.row(block.row(r))) +
             static_cast<std::uintptr_t>(slice_offset(block))),
        step(R * block.ring.groups * tensor.stride) {
    const Slice& slice = block.slice;
    const int first = slice.begin * kElements<T> - slice.shift;
    const int size = static_cast<int>(sizeof(T));
    before = first < 0 ? -first * size : 0;
    bytes = (block.columns_before(slice.begin + slice.count) - block.columns_before(slice.begin)) *
            size;
  }

  // Starts to load row k, its part of a step, into a stage: whole lines, as far as the tensor has
  // them. Arrives on the stage's barrier. Then k is the row of the next step.
  __device__ __forceinline__ void copy(const Block<T>& block, int stage) {
    const Lds<AsyncBarrier> full = block.full(stage);
    if (bytes == 0 || k >= block.slice.rows) {
      barrier_arrive(full);
    } else {
      constexpr std::uintptr_t kMask = kLineBytes - 1;
      const std::uintptr_t origin = next & ~kMask;  // what comes to lie at the start of `buffer`
      const int buffer = ((stage * R + r) * kTensors + which) * block.ring.row_bytes;
      const std::uintptr_t low = next + static_cast<unsigned>(before);
      const std::uintptr_t high = low + static_cast<unsigned>(bytes);
      std::uintptr_t from = low & ~kMask, to = (high + kMask) & ~kMask;
      const auto readable_begin = reinterpret_cast<std::uintptr_t>(tensor.readable_begin);
      const auto readable_end = reinterpret_cast<std::uintptr_t>(tensor.readable_end);
      if (from < readable_begin) {
        from = readable_begin;
        if (low < from) patch(block, low, from < high ? from : high, buffer, origin);
      }
      if (to > readable_end) {
        to = readable_end;
        if (to < high) patch(block, to > low ? to : low, high, buffer, origin);
      }
      const unsigned length = to > from ? static_cast<unsigned>(to - from) : 0;
      barrier_arrive_expect(full, length);
      if (length != 0) {
        copy_to_lds(
            block.memory.template at<unsigned char>(buffer + static_cast<int>(from - origin)),
            reinterpret_cast<const void*>(from), length, full);
      }
    }
    k += R;
    next += static_cast<std::uintptr_t>(step);
  }

  // The elements from `low` to `high`, less than a packet, which whole packets cannot bring: at the
  // ends of a tensor that is not 16-byte aligned.
  __device__ __forceinline__ static void patch(const Block<T>& block, std::uintptr_t low,
                                               std::uintptr_t high, int buffer,
                                               std::uintptr_t origin) {
    const int count = static_cast<int>(high - low) / static_cast<int>(sizeof(T));
    const T* source = reinterpret_cast<const T*>(low);
    const Lds<T> target = block.memory.template at<T>(buffer + static_cast<int>(low - origin));
    T values[kElements<T>];
#pragma unroll
    for (int i = 0; i < kElements<T>; ++i) {
      if (i < count) values[i] = source[i];
    }
#pragma unroll
    for (int i = 0; i < kElements<T>; ++i) {
      if (i < count) target[i] = values[i];
    }
    fence_async();
  }
};

// Before the loop, by one lane. A wave's sums within one block arrive from `posts` lanes.
template <class T>
__device__ __forceinline__ void init_barriers(const Block<T>& block, unsigned arrivals_of_full,
                                              unsigned posts) {
  const Ring& ring = block.ring;
  const auto waves = static_cast<unsigned>(ring.waves);
  for (int s = 0; s < ring.stages; ++s) {
    barrier_init(block.full(s), arrivals_of_full);
    barrier_init(block.empty(s), waves);
    barrier_init(block.ready(s), 1);
  }
  for (int s = 0; s < 2 * ring.stages; ++s) {
    barrier_init(block.sums(s), ring.split > 1 ? 1 : waves * posts);
  }
  barrier_init_fence();
}

// The loader: loads all rows of the group, and for row r the pair that values(r) gives, which is
// asked for kWave rows and more ahead.
template <class T, int kTensors, int R, class Values>
class Loader {
 public:
  __device__ __forceinline__ Loader(const Block<T>& block, const Rows& x, const Rows& dy,
                                    const Values& values)
      : block_(block),
        values_(values),
        lane_(static_cast<int>(threadIdx.x) % kWave),
        mine_(block, x, dy, lane_) {}

  // Before the waves meet.
  __device__ __forceinline__ void start() {
    now_ = values_of(lane_);
    next_ = values_of(kWave + lane_);
    if (lane_ == 0) init_barriers(block_, (kTensors + 1) * R, kTensors == 1 ? 1 : 2 * R);
    wave_sync();
    for (int step = 0; step < initial(); ++step) copy(step);
    wave_sync();
  }

  __device__ __forceinline__ void run() {
    const Ring& ring = block_.ring;
    for (int step = 0; step < initial(); ++step) publish(step, step);
    Turn turn;
    for (int step = initial(); step < steps(); ++step) {
      const int stage = turn.stage(ring);
      barrier_wait(block_.empty(stage), turn.stage_parity(ring));
      copy(stage);
      publish(step, stage);
      turn = turn.next(ring);
      wave_sync();  // no lane may fall two phases behind
    }
  }

 private:
  __device__ __forceinline__ int steps() const { return (block_.slice.rows + R - 1) / R; }
  __device__ __forceinline__ int initial() const {
    return steps() < block_.ring.stages ? steps() : block_.ring.stages;
  }
  __device__ __forceinline__ Pair values_of(int k) const {
    return k < block_.slice.rows ? values_(block_.row(k)) : Pair{0, 0};
  }
  __device__ __forceinline__ void copy(int stage) {
    if (lane_ < kTensors * R) mine_.copy(block_, stage);
  }
  __device__ __forceinline__ void publish(int step, int stage) {
    const int source = (step * R + lane_ % R) % kWave;
    const Pair pair = {__shfl(now_.a, source, kWave),
                       kTensors == 1 ? 0 : __shfl(now_.b, source, kWave)};
    if (lane_ < R) {
      *block_.values(stage * R + lane_) = pair;
      barrier_arrive(block_.full(stage));
    }
    const int done = (step + 1) * R;
    if (done % kWave == 0) {
      now_ = next_;
      next_ = values_of(done + kWave + lane_);
    }
  }

  const Block<T>& block_;
  const Values& values_;
  const int lane_;
  LoaderLane<T, kTensors, R> mine_;
  Pair now_ = {0, 0}, next_ = {0, 0};
};

// The finisher: when the waves of the cluster have posted all `bytes` of a step, finish(step, turn)
// writes the results of the step's rows.
template <class T, int R, class Finish>
__device__ __forceinline__ void run_finisher(const Block<T>& block, int bytes, Finish finish) {
  const Ring& ring = block.ring;
  const int steps = (block.slice.rows + R - 1) / R;
  const bool first = threadIdx.x % kWave == 0;
  Turn turn;
  for (int step = 0; step < steps; ++step) {
    const int stage = turn.stage(ring);
    const Lds<AsyncBarrier> sums = block.sums(turn.slot);
    if (first && ring.split > 1) barrier_arrive_expect(sums, static_cast<unsigned>(bytes));
    barrier_wait(block.full(stage), turn.stage_parity(ring));  // for the step's values
    barrier_wait(sums, turn.slot_parity);
    finish(step, turn);
    wave_sync();
    if (first) barrier_arrive(block.ready(stage));
    turn = turn.next(ring);
  }
}

}  // namespace hipnorm::gpu
