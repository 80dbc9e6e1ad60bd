// Sizes of the kernels that sum columns (backward_two_kernel, backward_sums_first, backward_roles):
// what plan(), the cost model and the launchers compute with. No HIP here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"
#include "kernels/gpu/instances.h"

namespace hipnorm::gpu {

// Launch bound of the three variants' kernels: 128 registers a lane on NVIDIA and 256 on CDNA.
inline constexpr int kMaxColumnThreads = 512;

// A block that sums columns takes a strip `packets` packets wide; its threads stand `depth` rows
// deep. Lane d of part p takes rows p + parts·d, p + parts·(d + depth), …
struct ColumnShape {
  int packets = 1;  // a power of two
  int depth = 1;    // threads / packets
  std::int64_t strips = 0;
};

// Packets of a row that the column blocks divide: backward_sums_first aligns them to the rows of
// dx, which may touch one packet more than the row fills; the others to column 0. The mask has no
// say: it must not change the order of a sum.
constexpr std::int64_t column_chunks(Variant variant, const Problem& problem) {
  if (variant == Variant::gpu_backward_sums_first) return chunks_of_row(problem);
  const std::int64_t elements = kPacketBytes / size_of(problem.x);
  return problem.cols / elements + (problem.cols % elements != 0);
}

constexpr ColumnShape column_shape(Variant variant, const Problem& problem, int threads) {
  const std::int64_t chunks = std::max<std::int64_t>(1, column_chunks(variant, problem));
  // 32 packets are 512 bytes in one piece of a row. Fewer give more strips, so that fewer parts
  // (16·N bytes of partial sums each) fill the device; 8 are a whole 128-byte line.
  constexpr int kWidest = 32, kLine = 8;
  constexpr std::int64_t kStripsWanted = 64;
  int packets = kWidest;
  while (packets > kLine && chunks < kStripsWanted * packets) packets /= 2;
  // More lanes than rows would be idle.
  while (packets < chunks && packets * 2 <= threads && threads / packets >= 2 * problem.rows) {
    packets *= 2;
  }
  while (packets > 1 && chunks <= packets / 2) packets /= 2;
  return {packets, threads / packets, (chunks + packets - 1) / packets};
}

constexpr std::int64_t column_strips(Variant variant, const Problem& problem, int threads) {
  return column_shape(variant, problem, threads).strips;
}

// backward_sums_first: all rows of a part must have one alignment, that of dx's rows.
constexpr bool parts_keep_alignment(const Problem& problem, int parts) {
  return parts % shift_period(problem) == 0 || parts >= problem.rows;
}

// LDS in which a block adds its threads' sums: one packet's columns of one gradient each.
constexpr std::int64_t column_lds_bytes(const Problem& problem, int threads) {
  const int accumulate = size_of(accumulate_type(problem.x));
  return std::int64_t{threads} * (kPacketBytes / size_of(problem.x)) * accumulate;
}
// LDS in which the waves of a block add the two sums of a row: reduce.h's block_sum2 has two sets
// of slots for a block of 1024 threads in waves of 32.
constexpr std::int64_t row_lds_bytes(const Problem& problem) {
  return 2 * 2 * 32 * size_of(accumulate_type(problem.x));
}

// Lanes of a block that share a row where nothing but sums stay on the chip (row_sums of
// backward_sums_first, the row blocks of backward_roles): a power of two up to a wave, or all. A
// lane with few packets has few loads in flight; a row on a whole block pays a barrier.
constexpr int row_lanes(const Problem& problem, int threads, int wave_size) {
  const std::int64_t chunks = chunks_of_row(problem);
  const bool few_rows = problem.rows < 2048;  // too few waves to fill a device
  if (chunks > wave_size * (few_rows ? 4 : 16)) return threads;
  int lanes = 1;
  while (lanes < wave_size && lanes < chunks) lanes *= 2;
  return lanes;
}
constexpr std::int64_t row_blocks(const Problem& problem, int threads, int wave_size) {
  const std::int64_t rows_each = threads / row_lanes(problem, threads, wave_size);
  return (problem.rows + rows_each - 1) / rows_each;
}

// backward_roles: the first blocks reduce columns, a strip each over all rows, the others do rows.
constexpr std::int64_t role_blocks(const Problem& problem, int threads, int wave_size) {
  const bool columns = problem.grads.dweight || problem.grads.dbias;
  return (columns ? column_strips(Variant::gpu_backward_roles, problem, threads) : 0) +
         (problem.grads.dx ? row_blocks(problem, threads, wave_size) : 0);
}
// plan.lds_bytes of backward_roles.
constexpr std::int64_t role_lds_bytes(const Problem& problem, int threads) {
  return std::max(column_lds_bytes(problem, threads), row_lds_bytes(problem));
}

// backward_sums_first: rows that both kernels take before the next ones are begun, so that the
// second reads x and dy of these rows from a large cache at the memory (AMD's Infinity Cache). Half
// of it: dx passes through it too. The mask has no say: panels change the order of the sums.
// No panels where the last cache is an L2: those of an H200's would be of 85 blocks for 132 units.
constexpr std::int64_t panel_rows(const Problem& problem, const Device& device) {
  const std::int64_t row_bytes = 2 * problem.cols * size_of(problem.x);
  if (device.llc_bytes <= device.l2_bytes || row_bytes == 0 ||
      problem.rows <= device.llc_bytes / row_bytes) {
    return problem.rows;
  }
  return std::max<std::int64_t>(1, device.llc_bytes / 2 / row_bytes);
}

}  // namespace hipnorm::gpu
