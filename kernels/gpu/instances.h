// The GPU kernels' compile-time instances, and the sizes that follow from them: what dispatch needs
// to know of the kernels to plan a launch. No HIP here.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::gpu {

// Bytes of one lane's load or store.
inline constexpr int kPacketBytes = 16;

// An instance holds `vectors` packets of a row in each lane, in blocks of at most `max_threads`
// threads (its launch bound, which is what its registers allow; 0: not built there).
struct Instance {
  int vectors;
  int max_threads;         // NVIDIA: 65536 registers a multiprocessor
  int max_threads_on_amd;  // CDNA: 131072 registers a compute unit
};

// The first instance that holds a row of `chunks` packets on `lanes` lanes; null: none does.
constexpr const Instance* instance_for(std::span<const Instance> instances, std::int64_t chunks,
                                       std::int64_t lanes) {
  for (const Instance& instance : instances) {
    if (instance.vectors * lanes >= chunks) return &instance;
  }
  return nullptr;
}

// Packets that a row of the problem may touch: where rows are not 16-byte aligned, one more.
constexpr std::int64_t chunks_of_row(const Problem& problem) {
  const std::int64_t elements = kPacketBytes / size_of(problem.x);
  const std::int64_t shift =
      problem.alignment >= kPacketBytes ? 0 : elements - problem.alignment / size_of(problem.x);
  return (problem.cols + shift + elements - 1) / elements;
}

// Rows whose starts have the same alignment follow each other at this distance at most: persistent
// groups that keep columns in registers step over a multiple of it.
constexpr int shift_period(const Problem& problem) {
  return problem.alignment >= kPacketBytes ? 1 : kPacketBytes / problem.alignment;
}

// Whether rows are whole packets, each at a multiple of 16 bytes.
constexpr bool whole_packets(const Problem& problem) {
  return problem.alignment >= kPacketBytes && problem.cols * size_of(problem.x) % kPacketBytes == 0;
}

// Registers of a compute unit, where it is one of AMD's: 131072 on CDNA (4 SIMDs of 128 KB), 98304
// and more on RDNA3. NVIDIA's multiprocessors have 65536.
inline bool is_amd(const Device& device) {
  constexpr int kFewestOnAmd = 98304;
  return device.registers >= kFewestOnAmd || device.arch.starts_with("gfx");
}

// forward_row and backward_row with stages=2: whether the kernels for whole packets run.
constexpr bool takes_packets(const Problem& problem, int stages, bool amd) {
  return amd && stages > 1 && problem.x != DType::f64 && whole_packets(problem);
}

// forward_wave, backward_wave: a row on threads / rows_per_block lanes of one wave. Three packets
// are the row of 768 bf16 on 32 lanes.
inline constexpr Instance kForwardWave[] = {
    {1, 1024, 1024}, {2, 1024, 1024}, {3, 512, 512}, {4, 768, 512}, {8, 512, 512}};
inline constexpr Instance kBackwardWave[] = {
    {1, 640, 1024}, {2, 384, 512}, {3, 384, 512}, {4, 256, 0}};
// forward_row, backward_row: a row on a block.
inline constexpr Instance kForwardRow[] = {
    {1, 1024, 1024}, {2, 768, 1024}, {4, 512, 512}, {8, 512, 512}, {16, 384, 512}};
inline constexpr Instance kBackwardRow[] = {{1, 768, 1024}, {2, 512, 512}, {4, 256, 512}};
// forward_row with stages=2 on AMD, where rows are whole packets.
inline constexpr Instance kForwardPackets[] = {
    {1, 0, 1024}, {2, 0, 1024}, {3, 0, 512},  {4, 0, 512},  {5, 0, 512},  {6, 0, 512}, {8, 0, 512},
    {9, 0, 512},  {10, 0, 512}, {13, 0, 512}, {16, 0, 512}, {20, 0, 512}, {26, 0, 512}};
// backward_row likewise. 6 packets of 16-bit elements would leave f32 weights no registers.
inline constexpr Instance kBackwardPackets[] = {{1, 0, 1024}, {2, 0, 512}, {3, 0, 512},
                                                {4, 0, 512},  {5, 0, 512}, {7, 0, 512},
                                                {9, 0, 512},  {10, 0, 512}};
inline constexpr Instance kBackwardPacketsF32[] = {{1, 0, 1024}, {2, 0, 512}, {3, 0, 512},
                                                   {4, 0, 512},  {6, 0, 512}, {8, 0, 512}};
// backward_group: a block's strip of a row on each of its waves.
inline constexpr Instance kBackwardGroup[] = {
    {1, 512, 1024}, {2, 384, 512}, {3, 256, 512}, {4, 0, 512}, {5, 0, 512}};
inline constexpr Instance kBackwardGroupF16[] = {// conversions take 7 registers more a packet
                                                 {1, 384, 1024},
                                                 {2, 256, 512},
                                                 {3, 192, 512},
                                                 {4, 0, 512}};
// backward_row without dweight and dbias: the second kernel of backward_two_kernel.
inline constexpr Instance kBackwardRowDx[] = {
    {1, 1024, 1024}, {2, 1024, 1024}, {4, 512, 512}, {8, 384, 0}};
// forward_ring, backward_ring: a row on `split` blocks of config.threads threads, and two more
// waves a block that serve them; max_threads is without those. Picked by ring_instance
// (ring_layout.h). Wide: f32 weights of 16-bit rows, which take twice the registers.
inline constexpr Instance kForwardRing[] = {{1, 608, 0}, {2, 576, 0}, {3, 448, 0}, {4, 448, 0}};
inline constexpr Instance kForwardRingWide[] = {{1, 608, 0}, {2, 576, 0}, {3, 448, 0}, {4, 320, 0}};
inline constexpr Instance kForwardRingF32[] = {
    {1, 608, 0}, {2, 576, 0}, {3, 576, 0}, {4, 448, 0}, {8, 320, 0}};
inline constexpr Instance kBackwardRing[] = {{1, 576, 0}, {2, 448, 0}, {3, 448, 0}, {4, 448, 0}};
inline constexpr Instance kBackwardRingWide[] = {{1, 576, 0}, {2, 448, 0}, {3, 320, 0}};
inline constexpr Instance kBackwardRingF32[] = {{1, 608, 0}, {2, 576, 0}, {3, 448, 0}, {5, 448, 0}};

// Those of the wave and row kernels that are built for a problem's dtype. Wide rows of f64 are
// rare: they stream, and are summed first.
inline constexpr int kMaxVectorsOfF64 = 4;
constexpr std::span<const Instance> built_for(std::span<const Instance> instances, DType x) {
  while (x == DType::f64 && instances.back().vectors > kMaxVectorsOfF64) {
    instances = instances.first(instances.size() - 1);
  }
  return instances;
}

// backward_row for whole packets: from how many packets on the weights and some packets of x lie in
// LDS, where gfx950 has room for them; and how many of x's then stay in registers. Only for blocks
// of so many threads: offsets are constants.
inline constexpr int kPacketsInLds = 7, kThreadsWithLds = 512;
constexpr bool keeps_in_lds(int vectors, DType x) {
  return size_of(x) == 2 && vectors >= kPacketsInLds;
}
constexpr int x_in_registers(int vectors) { return vectors < 10 ? 2 : 1; }
constexpr std::int64_t backward_packets_lds_bytes(int vectors, DType x, DType weight) {
  if (!keeps_in_lds(vectors, x)) return 0;
  const std::int64_t weights = std::int64_t{vectors} * (size_of(weight) > size_of(x) ? 2 : 1);
  return (weights + vectors - x_in_registers(vectors)) * kThreadsWithLds * kPacketBytes;
}

// LDS of one block. forward_row, forward_stream, backward_row and the row kernel of
// backward_two_kernel: two values of each of up to 32 waves, twice.
inline constexpr std::int64_t kRowLdsBytes = 2 * 2 * 32 * 8;
// backward_wave: an accumulator for each element of the rows that the block's lanes hold.
constexpr std::int64_t backward_wave_lds_bytes(int threads, int vectors, DType x) {
  return std::int64_t{threads} * vectors * kPacketBytes / size_of(x) * size_of(accumulate_type(x));
}

}  // namespace hipnorm::gpu
