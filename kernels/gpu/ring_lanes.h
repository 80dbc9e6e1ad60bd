// The waves of a block that compute, in forward_ring and backward_ring (ring.h).
#pragma once

#include "kernels/gpu/ring.h"

namespace hipnorm::gpu {

// What a computing lane knows of its V chunks, the same for all rows of the group: chunk `place` of
// the slice, place + kWave, place + 2·kWave …; a wave's chunks lie together.
template <class T, int V>
struct LaneChunks {
  // In straight code ptxas reads and unpacks all packets at once, for which four leave no
  // registers.
  static constexpr bool kStraight = V <= 3;
  int place;
  bool partial;  // any of them is not a whole packet of the row
  bool whole;    // all V are there, whole packets: no need to ask of each (kStraight)

  __device__ __forceinline__ explicit LaneChunks(const Block<T>& block) {
    const int thread = static_cast<int>(threadIdx.x);
    place = thread / kWave * (kWave * V) + thread % kWave;
    partial = false;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      partial |= exists(block, j) && !of(block, j).template full<T>();
    }
    whole = kStraight && exists(block, V - 1) && !partial;
  }
  __device__ __forceinline__ bool exists(const Block<T>& block, int j) const {
    return place + j * kWave < block.slice.count;
  }
  __device__ __forceinline__ Chunk of(const Block<T>& block, int j) const {
    return chunk<T, int>(block.slice.begin + opaque(place) + j * kWave, block.slice.shift,
                         block.ring.cols);
  }
  // Found again where they are needed: a register each is what the largest instances lack.
  __device__ __forceinline__ unsigned lane() const {
    return static_cast<unsigned>(opaque(place)) % static_cast<unsigned>(kWave);
  }
  __device__ __forceinline__ unsigned wave() const {
    return static_cast<unsigned>(opaque(place)) / static_cast<unsigned>(kWave * V);
  }
  // Bytes from the slice's first chunk to chunk j.
  __device__ __forceinline__ int offset(int j) const { return (place + j * kWave) * kPacketBytes; }
};

// Where in its line the slice of row k of a tensor begins.
struct LinePlace {
  unsigned start;
  const unsigned& step;
  template <class T>
  __device__ __forceinline__ LinePlace(const Block<T>& block, const Rows& tensor,
                                       const unsigned& line_step)
      : start(
            static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(tensor.row(block.slice.group)) +
                                  static_cast<std::uintptr_t>(slice_offset(block)))),
        step(line_step) {}
  __device__ __forceinline__ int of(int k) const {
    constexpr auto kLine = static_cast<unsigned>(kLineBytes);
    return static_cast<int>((start + static_cast<unsigned>(k) * step) % kLine);
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

// Whether rows whose slices begin at `at`, by tensor, are read in aligned packets.
template <int kTensors>
__device__ __forceinline__ bool is_aligned(const int (&at)[kTensors]) {
  return (kTensors == 1 ? at[0] : at[0] | at[kTensors - 1]) % kPacketBytes == 0;
}

// A lane's packets first, first + 1 … (those below V) of a row whose slices begin at `at`, by
// tensor; zero where the lane has no chunk. In partial chunks neighbours' elements come along,
// unless kMasked: then dy is zero there, and x as fill_outside has it. kQuick: chunks.whole and
// is_aligned(at).
template <class T, bool kQuick, bool kMasked, int kTensors, int N, int V>
__device__ __forceinline__ void read_packets(const Block<T>& block, const LaneChunks<T, V>& chunks,
                                             const int (&at)[kTensors], int first,
                                             Packet (&packets)[kTensors][N]) {
  if constexpr (kQuick) {
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      const Lds<Packet> from = block.memory.template at<Packet>(at[t] + chunks.offset(first));
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (first + j < V) packets[t][j] = from[j * kWave];
      }
    }
    return;
  }
  const bool aligned = is_aligned(at);
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

// Where a lane's chunk 0 of the group's first row lies in the output. (The slice may begin before
// the row, and the lane's chunks behind it.)
template <class T, int V>
__device__ __forceinline__ char* first_output(const Block<T>& block,
                                              const LaneChunks<T, V>& chunks) {
  return const_cast<char*>(block.ring.out) + block.slice.group * block.ring.out_stride +
         slice_offset(block) + chunks.offset(0);
}

// Writes a lane's packets first, first + 1 … (those below V) of a row; `out` is where its chunk 0
// lies.
template <class T, bool kQuick, int N, int V>
__device__ __forceinline__ void write_packets(const Block<T>& block, const LaneChunks<T, V>& chunks,
                                              char* out, int first, const Packet (&packets)[N]) {
  if (kQuick || !chunks.partial) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (first + j < V && (kQuick || chunks.exists(block, first + j))) {
        *reinterpret_cast<Packet*>(out + (first + j) * kWave * kPacketBytes) = packets[j];
      }
    }
    return;
  }
  char* row = out - chunks.offset(0) - slice_offset(block);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (first + j < V && chunks.exists(block, first + j)) {
      store_chunk<T>(row, chunks.of(block, first + j), packets[j]);
    }
  }
}

// weight or bias at a lane's columns, for all rows: as the T that they are, or as f32.
template <class T, bool kPacked, int V>
struct Parameters {
  Packet packets[V];
  __device__ __forceinline__ void set(int j, const float (&values)[kElements<T>]) {
    packets[j] = pack<T>(values);
  }
  __device__ __forceinline__ void set(int j, const Packet& packet) { packets[j] = packet; }
  __device__ __forceinline__ float get(int j, int i) const { return element<T>(packets[j], i); }
  // Unpacked again after this, not kept so over the whole loop.
  __device__ __forceinline__ void stay_packed(int j) { forget_unpacked(packets[j]); }
};
template <class T, int V>
struct Parameters<T, false, V> {
  float values[V][kElements<T>];
  __device__ __forceinline__ void set(int j, const float (&from)[kElements<T>]) {
#pragma unroll
    for (int i = 0; i < kElements<T>; ++i) values[j][i] = from[i];
  }
  __device__ __forceinline__ void set(int j, const Packet& packet) {
#pragma unroll
    for (int i = 0; i < kElements<T>; ++i) values[j][i] = element<T>(packet, i);
  }
  __device__ __forceinline__ float get(int j, int i) const { return values[j][i]; }
  __device__ __forceinline__ void stay_packed(int) {}
};
template <class T, bool kPacked, int V>
__device__ __forceinline__ void load_parameters(const Block<T>& block,
                                                const LaneChunks<T, V>& chunks, Parameter from,
                                                float absent, Parameters<T, kPacked, V>& to) {
  const char* slice = static_cast<const char*>(from.data) + slice_offset(block);
  if (from.data != nullptr && !from.wide && !chunks.partial &&
      reinterpret_cast<std::uintptr_t>(slice) % kPacketBytes == 0) {
    // All under way before the first has come: 1 µs each, when they come from memory.
    Packet packets[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      packets[j] = zero_packet();
      if (chunks.exists(block, j)) {
        packets[j] = *reinterpret_cast<const Packet*>(slice + chunks.offset(j));
      }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) to.set(j, packets[j]);
    return;
  }
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
  Turn turn, done;
  for (int i = 0; i < steps + lag; ++i) {
    if (i < steps) sum(i, turn);
    if (i >= lag) {
      const int stage = done.stage(ring);
      if (exchange) apply(i - lag, done);
      wave_sync();
      if (threadIdx.x % kWave == 0) barrier_arrive(block.empty(stage));
      done = done.next(ring);
      done.slot = opaque(done.slot);
    }
    turn = turn.next(ring);
    turn.slot = opaque(turn.slot);
  }
}

}  // namespace hipnorm::gpu
