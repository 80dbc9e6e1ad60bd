// What forward_ring and backward_ring share: a group's slices of its rows, the wave that loads
// them, and how the other waves read them.
//
// A group is a cluster of `split` blocks (or one block) and takes rows g, g + groups, … Each of its
// blocks holds the same chunks of all of them. One wave, the loader, keeps `stages` steps of rows
// in flight: bulk copies into LDS. The others, the computing waves, take a step when its `full`
// barrier says that its bytes have landed, in two phases: they sum and post what they found to all
// blocks of the cluster; one step later, when the `sums` barrier says that all posts of the cluster
// have come, they read the step's packets again, write the output and free the stage (`empty`). So
// nobody waits for an exchange that has just begun, and there is no barrier of the block or cluster
// in the loop. Slots for posts need no flow control: a wave posts for step i only after it has had
// all posts for step i − 2, whose senders had read theirs for step i − 4, and there are 2·stages ≥
// 4 slots.
#pragma once

#include "kernels/gpu/async.h"
#include "kernels/gpu/prepare.h"
#include "kernels/gpu/ring_layout.h"
#include "kernels/gpu/row.h"
#include "kernels/launch.h"

namespace hipnorm::gpu {

// Host: of a kernel's arguments, what both kernels need.
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
  int records = 0;
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
          .records = static_cast<int>(layout.records),
          .slots = static_cast<int>(layout.slots),
          .slot_bytes = static_cast<int>(layout.slot_bytes),
          .counts = static_cast<int>(layout.counts),
          .barriers = static_cast<int>(layout.barriers)};
}

// What the loader tells the computing waves of one row of a stage.
struct alignas(16) RowRecord {
  float a;    // backward: mean, forward: the row's first element
  float b;    // backward: rstd
  int at[2];  // where the slice's chunks begin in LDS, by tensor; in bytes
};
static_assert(sizeof(RowRecord) == kRecordBytes);

// Where step i stands: its slot of sums, i mod 2·stages, which also tells the stage, i mod stages,
// and the parities of both.
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
  __device__ __forceinline__ Turn previous(const Ring& ring) const {
    return slot > 0 ? Turn{slot - 1, slot_parity} : Turn{2 * ring.stages - 1, slot_parity ^ 1};
  }
};

__device__ __forceinline__ Lds<AsyncBarrier> full_barrier(const Ring& ring, int stage) {
  return lds_at<AsyncBarrier>(ring.barriers) + stage;
}
__device__ __forceinline__ Lds<AsyncBarrier> empty_barrier(const Ring& ring, int stage) {
  return lds_at<AsyncBarrier>(ring.barriers) + (ring.stages + stage);
}
__device__ __forceinline__ Lds<AsyncBarrier> sums_barrier(const Ring& ring, int slot) {
  return lds_at<AsyncBarrier>(ring.barriers) + (2 * ring.stages + slot);
}

// A block's part of its group's rows.
struct Slice {
  std::int64_t group;
  int rows;  // of the group
  int rank;
  int shift;  // of the output's rows: the same for all rows of a group
  int begin;  // chunks begin … begin + count − 1
  int count;

  __device__ __forceinline__ std::int64_t row(const Ring& ring, int k) const {
    return group + k * ring.groups;
  }
};

template <class T>
__device__ __forceinline__ Slice slice_of(const Ring& ring) {
  Slice slice;
  slice.group = static_cast<std::int64_t>(blockIdx.x) / ring.split;
  slice.rank = static_cast<int>(blockIdx.x % static_cast<unsigned>(ring.split));
  slice.rows = slice.group < ring.rows
                   ? static_cast<int>((ring.rows - slice.group + ring.groups - 1) / ring.groups)
                   : 0;
  slice.shift = shift_of<T>(ring.out + slice.group * ring.out_stride);
  const int chunks = static_cast<int>(chunks_of<T>(ring.cols, slice.shift));
  slice.begin = slice.rank * ring.slice;
  const int left = chunks - slice.begin;
  slice.count = left < 0 ? 0 : left < ring.slice ? left : ring.slice;
  return slice;
}

// ---- The loader -------------------------------------------------------------------------------

// The loader's lane for one row (of R in a step) of one tensor (x, and dy in backward).
template <class T, int kTensors, int R>
struct LoaderLane {
  Rows tensor;
  int which;   // tensor
  int r;       // row of the step
  int first;   // column of the slice's first element; may be negative, in the first chunk
  int before;  // bytes of that chunk before the row
  int bytes;   // of the slice in the row

  __device__ __forceinline__ void init(const Ring& ring, const Slice& slice, const Rows& x,
                                       const Rows& dy, int lane) {
    constexpr int kSize = static_cast<int>(sizeof(T));
    which = kTensors == 2 && lane >= R ? 1 : 0;
    r = lane % R;
    tensor = which == 0 ? x : dy;
    first = slice.begin * kElements<T> - slice.shift;
    const int end = first + slice.count * kElements<T>, last = end < ring.cols ? end : ring.cols;
    before = first < 0 ? -first * kSize : 0;
    bytes = slice.count > 0 ? (last - first) * kSize - before : 0;
  }

  // Starts to load row k of the group, its part of a step, into a stage: whole lines, as far as the
  // tensor has them. Arrives on the stage's barrier.
  __device__ __forceinline__ void copy(const Ring& ring, const Slice& slice, int k,
                                       int stage) const {
    const Lds<AsyncBarrier> full = full_barrier(ring, stage);
    const int row = stage * R + r;
    if (bytes == 0 || k >= slice.rows) {
      barrier_arrive(full);
      return;
    }
    constexpr std::uintptr_t kMask = kLineBytes - 1;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.row(slice.row(ring, k)) +
                                                        static_cast<std::int64_t>(first) *
                                                            std::int64_t{sizeof(T)});
    const std::uintptr_t origin = begin & ~kMask;  // what comes to lie at the start of `buffer`
    const int buffer = (row * kTensors + which) * ring.row_bytes;
    lds_at<int>(ring.records + row * static_cast<int>(kRecordBytes) + 8)[which] =
        buffer + static_cast<int>(begin - origin);
    const std::uintptr_t low = begin + static_cast<unsigned>(before);
    const std::uintptr_t high = low + static_cast<unsigned>(bytes);
    const auto readable_begin = reinterpret_cast<std::uintptr_t>(tensor.readable_begin);
    const auto readable_end = reinterpret_cast<std::uintptr_t>(tensor.readable_end);
    std::uintptr_t from = low & ~kMask, to = (high + kMask) & ~kMask;
    if (from < readable_begin) {
      from = readable_begin;
      if (low < from) patch(low, from < high ? from : high, buffer, origin);
    }
    if (to > readable_end) {
      to = readable_end;
      if (to < high) patch(to > low ? to : low, high, buffer, origin);
    }
    const unsigned length = to > from ? static_cast<unsigned>(to - from) : 0;
    barrier_arrive_expect(full, length);
    if (length != 0) {
      copy_to_lds(lds_at<unsigned char>(buffer + static_cast<int>(from - origin)),
                  reinterpret_cast<const void*>(from), length, full);
    }
  }

  // The elements from `low` to `high`, less than a packet, which whole packets cannot bring: at the
  // ends of a tensor that is not 16-byte aligned.
  __device__ __forceinline__ static void patch(std::uintptr_t low, std::uintptr_t high, int buffer,
                                               std::uintptr_t origin) {
    const int count = static_cast<int>(high - low) / static_cast<int>(sizeof(T));
    const T* source = reinterpret_cast<const T*>(low);
    const Lds<T> target = lds_at<T>(buffer + static_cast<int>(low - origin));
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

// The loader: loads all rows of the group, and for row k the values that values(row) gives, which
// are asked for kWave rows and more ahead. Every step's slot of sums gets `posted` bytes (0: there
// is no exchange). Takes part in the block's and the cluster's barrier.
template <class T, int kTensors, int R, class Values>
__device__ __forceinline__ void load_rows(const Ring& ring, const Slice& slice, const Rows& x,
                                          const Rows& dy, int posted, Values values) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const int steps = (slice.rows + R - 1) / R;
  const int initial = steps < ring.stages ? steps : ring.stages;
  const auto values_of = [&](int k) {
    return k < slice.rows ? values(slice.row(ring, k)) : Pair{0, 0};
  };
  Pair now = values_of(lane), next = values_of(kWave + lane);

  if (lane == 0) {
    for (int s = 0; s < ring.stages; ++s) {
      barrier_init(full_barrier(ring, s), (kTensors + 1) * R);
      barrier_init(empty_barrier(ring, s), static_cast<unsigned>(ring.waves));
    }
    for (int s = 0; s < 2 * ring.stages; ++s) barrier_init(sums_barrier(ring, s), 1);
    barrier_init_fence();
  }
  wave_sync();

  LoaderLane<T, kTensors, R> mine;
  mine.init(ring, slice, x, dy, lane);
  const auto copy = [&](int step, int stage) {
    if (lane < kTensors * R) mine.copy(ring, slice, step * R + mine.r, stage);
  };
  const auto publish = [&](int step, Turn turn) {
    const int stage = turn.stage(ring), source = (step * R + lane % R) % kWave;
    const float a = __shfl(now.a, source, kWave), b = __shfl(now.b, source, kWave);
    if (lane < R) {
      const Lds<float> record =
          lds_at<float>(ring.records + (stage * R + lane) * static_cast<int>(kRecordBytes));
      record[0] = a;
      record[1] = b;
      barrier_arrive(full_barrier(ring, stage));
    }
    if (lane == 0 && posted != 0) {
      barrier_arrive_expect(sums_barrier(ring, turn.slot), static_cast<unsigned>(posted));
    }
    const int done = (step + 1) * R;
    if (done % kWave == 0) {
      now = next;
      next = values_of(done + kWave + lane);
    }
  };

  for (int step = 0; step < initial; ++step) copy(step, step);
  __syncthreads();
  if (ring.split > 1) {
    cluster_arrive();
    cluster_wait();
  }
  Turn turn;
  for (int step = 0; step < initial; ++step) {
    publish(step, turn);
    turn = turn.next(ring);
  }
  for (int step = initial; step < steps; ++step) {
    barrier_wait(empty_barrier(ring, turn.stage(ring)), turn.stage_parity(ring) ^ 1);
    copy(step, turn.stage(ring));
    publish(step, turn);
    turn = turn.next(ring);
    wave_sync();  // no lane may fall two phases behind
  }
}

// ---- The computing waves ----------------------------------------------------------------------

// The same number, but not to the compiler: what is computed from it stays where it is. Else the
// chunks of rare partial packets would be found once before the loop, and held in registers.
__device__ __forceinline__ int opaque(int x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// What a computing lane knows of its V chunks, the same for all rows of the group:
// slice.begin + place, + kWave, + 2·kWave …; a wave's chunks lie together.
template <class T, int V>
struct LaneChunks {
  int place;     // of chunk 0 in the slice
  bool partial;  // any of them is not a whole packet of the row

  __device__ __forceinline__ void init(const Ring& ring, const Slice& slice) {
    const int thread = static_cast<int>(threadIdx.x);
    place = thread / kWave * (kWave * V) + thread % kWave;
    partial = false;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      partial |= exists(slice, j) && !of(ring, slice, j).template full<T>();
    }
  }
  __device__ __forceinline__ bool exists(const Slice& slice, int j) const {
    return place + j * kWave < slice.count;
  }
  __device__ __forceinline__ Chunk of(const Ring& ring, const Slice& slice, int j) const {
    return chunk<T, int>(slice.begin + opaque(place) + j * kWave, slice.shift, ring.cols);
  }
  // Bytes from the slice's first chunk to chunk j.
  __device__ __forceinline__ int offset(int j) const { return (place + j * kWave) * kPacketBytes; }
};

// The packet at any element of LDS.
template <class T>
__device__ __forceinline__ Packet read_shifted(int at) {
  const Lds<std::uint32_t> words = lds_at<std::uint32_t>(at & ~3);
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
__device__ __forceinline__ void read_packets(const Ring& ring, const Slice& slice,
                                             const LaneChunks<T, V>& chunks, const int (&at)[2],
                                             int first, Packet (&packets)[kTensors][N]) {
  const bool aligned = (kTensors == 1 ? at[0] : at[0] | at[1]) % kPacketBytes == 0;
  if (aligned) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
#pragma unroll
      for (int t = 0; t < kTensors; ++t) {
        packets[t][j] = zero_packet();
        if (first + j < V && chunks.exists(slice, first + j)) {
          packets[t][j] = *lds_at<Packet>(at[t] + chunks.offset(first + j));
        }
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
#pragma unroll
      for (int t = 0; t < kTensors; ++t) {
        packets[t][j] = zero_packet();
        if (first + j < V && chunks.exists(slice, first + j)) {
          packets[t][j] = read_shifted<T>(at[t] + chunks.offset(first + j));
        }
      }
    }
  }
  if (kMasked && chunks.partial) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (first + j >= V || !chunks.exists(slice, first + j)) break;
      const Chunk chunk = chunks.of(ring, slice, first + j);
      fill_outside<T>(packets[0][j], chunk);
      if constexpr (kTensors == 2) mask<T>(packets[1][j], chunk);
    }
  }
}

// Writes chunk j of a row.
template <class T, int V>
__device__ __forceinline__ void write_packet(const Ring& ring, const Slice& slice,
                                             const LaneChunks<T, V>& chunks, char* row, int j,
                                             const Packet& packet) {
  if (!chunks.exists(slice, j)) return;
  if (chunks.partial) {
    store_chunk<T>(row, chunks.of(ring, slice, j), packet);
    return;
  }
  const std::int64_t first = slice.begin * kPacketBytes - slice.shift * std::int64_t{sizeof(T)};
  *reinterpret_cast<Packet*>(row + first + chunks.offset(j)) = packet;
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
__device__ __forceinline__ void load_parameters(const Ring& ring, const Slice& slice,
                                                const LaneChunks<T, V>& chunks, Parameter from,
                                                float absent, Parameters<T, kPacked, V>& to) {
#pragma unroll
  for (int j = 0; j < V; ++j) {
    float values[kElements<T>] = {};
    if (chunks.exists(slice, j)) {
      load_parameter<T>(from, chunks.of(ring, slice, j), absent, values);
    }
    to.set(j, values);
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
