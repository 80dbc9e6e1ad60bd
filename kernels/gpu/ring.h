// What forward_ring and backward_ring share: a group's slices of its rows, the wave that loads
// them, and how the other waves read them.
//
// A group is a cluster of `split` blocks (or one block) and takes rows g, g + groups, … Each of its
// blocks holds the same chunks of all of them. One wave of a block, the loader, keeps `stages`
// steps of rows in flight: bulk copies into LDS. The others, the computing waves, go through a step
// in two phases. They sum what they find and post it to all blocks of the cluster. The loader adds
// up what the cluster's waves have posted: it has the time, and they would each do the same. One
// step later they read the step's packets again, write the output and free the stage. So nobody
// waits for an exchange that has just begun, and no barrier of the block or cluster is in the loop:
//
//   barrier        completes when                          who waits
//   full[stage]    a step's rows have landed               computing waves, before they sum
//   sums[slot]     all waves of the cluster have posted    the loader
//   ready[stage]   the loader has the rows' results        computing waves, before they write
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

inline Ring make_ring(const Launch& launch, const void* out, std::int64_t out_stride) {
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
  return {.rows = problem.rows,
          .groups = launch.plan.groups,
          .out = static_cast<const char*>(out),
          .out_stride = out_stride * size_of(problem.x),
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

// What the loader finds out about a row. Forward: RowScale; backward: mean, rstd, c1, −rstd·c2.
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
  std::int64_t group;
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
    slice.group = static_cast<std::int64_t>(blockIdx.x) / ring.split;
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

  // Before the loop: barriers and what else the waves have put into LDS become visible.
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

// ---- The loader -------------------------------------------------------------------------------

// The loader's lane for one row (of R in a step) of one tensor (x, and dy in backward).
template <class T, int kTensors, int R>
struct LoaderLane {
  Rows tensor;
  int which;   // tensor
  int r;       // row of the step
  int before;  // bytes of the slice's first chunk before the row
  int bytes;   // of the slice in the row

  __device__ __forceinline__ LoaderLane(const Block<T>& block, const Rows& x, const Rows& dy,
                                        int lane) {
    which = kTensors == 2 && lane >= R ? 1 : 0;
    r = lane % R;
    tensor = which == 0 ? x : dy;
    const Slice& slice = block.slice;
    const int first = slice.begin * kElements<T> - slice.shift;
    const int size = static_cast<int>(sizeof(T));
    before = first < 0 ? -first * size : 0;
    bytes = (block.columns_before(slice.begin + slice.count) - block.columns_before(slice.begin)) *
            size;
  }

  // Starts to load row k of the group, its part of a step, into a stage: whole lines, as far as the
  // tensor has them. Arrives on the stage's barrier.
  __device__ __forceinline__ void copy(const Block<T>& block, int k, int stage) const {
    const Lds<AsyncBarrier> full = block.full(stage);
    if (bytes == 0 || k >= block.slice.rows) {
      barrier_arrive(full);
      return;
    }
    constexpr std::uintptr_t kMask = kLineBytes - 1;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.row(block.row(k))) +
                       static_cast<std::uintptr_t>(slice_offset(block));
    const std::uintptr_t origin = begin & ~kMask;  // what comes to lie at the start of `buffer`
    const int buffer = ((stage * R + r) * kTensors + which) * block.ring.row_bytes;
    const std::uintptr_t low = begin + static_cast<unsigned>(before);
    const std::uintptr_t high = low + static_cast<unsigned>(bytes);
    const auto readable_begin = reinterpret_cast<std::uintptr_t>(tensor.readable_begin);
    const auto readable_end = reinterpret_cast<std::uintptr_t>(tensor.readable_end);
    std::uintptr_t from = low & ~kMask, to = (high + kMask) & ~kMask;
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
      copy_to_lds(block.memory.template at<unsigned char>(buffer + static_cast<int>(from - origin)),
                  reinterpret_cast<const void*>(from), length, full);
    }
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

// The loader: loads all rows of the group, and for row r the pair that values(r) gives, which is
// asked for kWave rows and more ahead. `posted`: bytes that the cluster posts for a step (0: there
// is no exchange); when they have come, finish(step, turn) writes the results of the step's rows.
template <class T, int kTensors, int R, class Values, class Finish>
__device__ __forceinline__ void run_loader(const Block<T>& block, const Rows& x, const Rows& dy,
                                           int posted, Values values, Finish finish) {
  const Ring& ring = block.ring;
  const Slice& slice = block.slice;
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const int steps = (slice.rows + R - 1) / R;
  const int initial = steps < ring.stages ? steps : ring.stages;
  const auto values_of = [&](int k) { return k < slice.rows ? values(block.row(k)) : Pair{0, 0}; };
  Pair now = values_of(lane), next = values_of(kWave + lane);

  if (lane == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      barrier_init(block.full(s), (kTensors + 1) * R);
      barrier_init(block.empty(s), static_cast<unsigned>(ring.waves));
      barrier_init(block.ready(s), 1);
    }
    for (int s = 0; s < 2 * ring.stages; ++s) barrier_init(block.sums(s), 1);
    barrier_init_fence();
  }
  wave_sync();

  const LoaderLane<T, kTensors, R> mine(block, x, dy, lane);
  const auto copy = [&](int step, int stage) {
    if (lane < kTensors * R) mine.copy(block, step * R + mine.r, stage);
  };
  const auto publish = [&](int step, const Turn& turn) {
    const int stage = turn.stage(ring), source = (step * R + lane % R) % kWave;
    const Pair pair = {__shfl(now.a, source, kWave), __shfl(now.b, source, kWave)};
    if (lane < R) {
      *block.values(stage * R + lane) = pair;
      barrier_arrive(block.full(stage));
    }
    if (lane == 0 && posted != 0) {
      barrier_arrive_expect(block.sums(turn.slot), static_cast<unsigned>(posted));
    }
    const int done = (step + 1) * R;
    if (done % kWave == 0) {
      now = next;
      next = values_of(done + kWave + lane);
    }
  };

  for (int step = 0; step < initial; ++step) copy(step, step);
  block.meet();
  Turn turn;
  for (int step = 0; step < initial; ++step) {
    publish(step, turn);
    turn = turn.next(ring);
  }
  // A step is freed after the next one has been summed.
  const int lag = posted != 0 ? 1 : 0;
  Turn finished;
  for (int i = 0; i < steps; ++i) {
    if (posted != 0) {
      barrier_wait(block.sums(finished.slot), finished.slot_parity);
      finish(i, finished);
      wave_sync();
      if (lane == 0) barrier_arrive(block.ready(finished.stage(ring)));
      finished = finished.next(ring);
    }
    const int step = i - lag + ring.stages;  // to load into the stage that step i − lag leaves
    if (i < lag || step >= steps) continue;
    barrier_wait(block.empty(turn.stage(ring)), turn.stage_parity(ring) ^ 1);
    copy(step, turn.stage(ring));
    publish(step, turn);
    turn = turn.next(ring);
    wave_sync();  // no lane may fall two phases behind
  }
}

// ---- The computing waves ----------------------------------------------------------------------

// What a computing lane knows of its V chunks, the same for all rows of the group: chunk `place` of
// the slice, place + kWave, place + 2·kWave …; a wave's chunks lie together.
template <class T, int V>
struct LaneChunks {
  int place;
  bool partial;  // any of them is not a whole packet of the row

  __device__ __forceinline__ explicit LaneChunks(const Block<T>& block) {
    const int thread = static_cast<int>(threadIdx.x);
    place = thread / kWave * (kWave * V) + thread % kWave;
    partial = false;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      partial |= exists(block, j) && !of(block, j).template full<T>();
    }
  }
  __device__ __forceinline__ bool exists(const Block<T>& block, int j) const {
    return place + j * kWave < block.slice.count;
  }
  __device__ __forceinline__ Chunk of(const Block<T>& block, int j) const {
    return chunk<T, int>(block.slice.begin + opaque(place) + j * kWave, block.slice.shift,
                         block.ring.cols);
  }
  // Bytes from the slice's first chunk to chunk j.
  __device__ __forceinline__ int offset(int j) const { return (place + j * kWave) * kPacketBytes; }
};

// Where in its line the slice of row k of a tensor begins.
struct LinePlace {
  int start;
  int step;
  template <class T>
  __device__ __forceinline__ LinePlace(const Block<T>& block, const Rows& tensor)
      : start(static_cast<int>(reinterpret_cast<std::uintptr_t>(tensor.row(block.slice.group)) %
                               kLineBytes) +
              static_cast<int>(slice_offset(block) % kLineBytes)),
        step(static_cast<int>(block.ring.groups * tensor.stride % kLineBytes)) {}
  __device__ __forceinline__ int of(int k) const {
    return (start + k * step) & (static_cast<int>(kLineBytes) - 1);
  }
};

// The packet at any element of LDS.
template <class T>
__device__ __forceinline__ Packet read_shifted(const Memory& memory, int at) {
  const Lds<std::uint32_t> words = memory.at<std::uint32_t>(at & ~3);
  Packet packet;
  if constexpr (sizeof(T) == 2) {
    const int shift = (at & 2) * 8;
    std::uint32_t low = words[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t high = words[i + 1];
      packet.word[i] =
          static_cast<std::uint32_t>((static_cast<std::uint64_t>(high) << 32 | low) >> shift);
      low = high;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) packet.word[i] = words[i];
  }
  return packet;
}

// Replaces the neighbours' elements in a partial chunk by one of the row's own: whatever is
// computed of it is as harmless as what is computed of that one. (Zero is not: far from the mean it
// may overflow.)
template <class T>
__device__ __forceinline__ void fill_outside(Packet& packet, Chunk c) {
  T inside{};
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (i == c.begin) inside = raw_element<T>(packet, i);
  }
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) {
    if (!c.holds(i)) set_element<T>(packet, i, inside);
  }
}

// A lane's packets first, first + 1 … (those below V) of a row whose slices begin at `at`, by
// tensor; zero where the lane has no chunk. In partial chunks neighbours' elements come along,
// unless kMasked: then dy is zero there, and x as fill_outside has it.
template <class T, bool kMasked, int kTensors, int N, int V>
__device__ __forceinline__ void read_packets(const Block<T>& block, const LaneChunks<T, V>& chunks,
                                             const int (&at)[kTensors], int first,
                                             Packet (&packets)[kTensors][N]) {
  const bool aligned = (kTensors == 1 ? at[0] : at[0] | at[kTensors - 1]) % kPacketBytes == 0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
#pragma unroll
    for (int t = 0; t < kTensors; ++t) packets[t][j] = zero_packet();
  }
  if (aligned) {
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      // One address, and constant distances from it.
      const Lds<Packet> from = block.memory.template at<Packet>(at[t] + chunks.offset(first));
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (first + j < V && chunks.exists(block, first + j)) packets[t][j] = from[j * kWave];
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (first + j >= V || !chunks.exists(block, first + j)) continue;
#pragma unroll
      for (int t = 0; t < kTensors; ++t) {
        packets[t][j] = read_shifted<T>(block.memory, at[t] + chunks.offset(first + j));
      }
    }
  }
  if (kMasked && chunks.partial) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (first + j >= V || !chunks.exists(block, first + j)) continue;
      const Chunk chunk = chunks.of(block, first + j);
      fill_outside<T>(packets[0][j], chunk);
      if constexpr (kTensors == 2) mask<T>(packets[1][j], chunk);
    }
  }
}

// Writes chunk j of a row, whose slice begins at `slice` (and may begin before the row).
template <class T, int V>
__device__ __forceinline__ void write_packet(const Block<T>& block, const LaneChunks<T, V>& chunks,
                                             char* slice, int j, const Packet& packet) {
  if (!chunks.exists(block, j)) return;
  if (!chunks.partial) {
    *reinterpret_cast<Packet*>(slice + chunks.offset(j)) = packet;
    return;
  }
  store_chunk<T>(slice - slice_offset(block), chunks.of(block, j), packet);
}

// weight or bias at a lane's columns, for all rows: as the T that they are, or as f32.
template <class T, bool kPacked, int V>
struct Parameters {
  Packet packets[V];
  __device__ __forceinline__ void set(int j, const float (&values)[kElements<T>]) {
    packets[j] = pack<T>(values);
  }
  __device__ __forceinline__ float get(int j, int i) const { return element<T>(packets[j], i); }
};
template <class T, int V>
struct Parameters<T, false, V> {
  float values[V][kElements<T>];
  __device__ __forceinline__ void set(int j, const float (&from)[kElements<T>]) {
#pragma unroll
    for (int i = 0; i < kElements<T>; ++i) values[j][i] = from[i];
  }
  __device__ __forceinline__ float get(int j, int i) const { return values[j][i]; }
};
template <class T, bool kPacked, int V>
__device__ __forceinline__ void load_parameters(const Block<T>& block,
                                                const LaneChunks<T, V>& chunks, Parameter from,
                                                float absent, Parameters<T, kPacked, V>& to) {
#pragma unroll
  for (int j = 0; j < V; ++j) {
    float values[kElements<T>] = {};
    if (chunks.exists(block, j)) load_parameter<T>(from, chunks.of(block, j), absent, values);
    to.set(j, values);
  }
}

// The computing waves' loop: sum(step, turn) and, one step later, apply(step, turn), which frees
// the stage. Without an exchange: sum alone, which frees it.
template <class T, int R, class Sum, class Apply>
__device__ __forceinline__ void run_computing_wave(const Block<T>& block, bool exchange, Sum sum,
                                                   Apply apply) {
  const Ring& ring = block.ring;
  const int steps = (block.slice.rows + R - 1) / R;
  const int lag = exchange ? 1 : 0;
  Turn turn, before;
  for (int i = 0; i < steps + lag; ++i) {
    if (i < steps) sum(i, turn);
    if (!exchange) before = turn;
    if (i >= lag) {
      const int stage = before.stage(ring);
      if (exchange) apply(i - 1, before);
      wave_sync();
      if (threadIdx.x % kWave == 0) barrier_arrive(block.empty(stage));
    }
    before = turn;
    turn = turn.next(ring);
    turn.slot = opaque(turn.slot);
  }
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
