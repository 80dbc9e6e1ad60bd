// Sizes of backward_group: what plan(), validate() and the launcher compute with. No HIP here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "csrc/dispatch/problem.h"
#include "kernels/gpu/instances.h"

namespace hipnorm::gpu {

constexpr std::span<const Instance> group_instances(DType x) {
  if (x == DType::f16) return kBackwardGroupF16;
  return kBackwardGroup;
}

// Packets of a row that each block of a group takes, the last one maybe fewer: whole lines of 128
// bytes.
constexpr std::int64_t group_slice(std::int64_t chunks, int split) {
  constexpr std::int64_t kLine = 8;
  const std::int64_t even = (chunks + split - 1) / std::max(1, split);
  return (even + kLine - 1) / kLine * kLine;
}

// LDS of a block: the slice's weights, as they are in memory, and behind them one packet's columns
// of one gradient of each wave.
constexpr std::int64_t group_weight_bytes(int vectors, int wave, DType x, DType weight) {
  const int packets = size_of(weight) > size_of(x) ? size_of(weight) / size_of(x) : 1;
  return std::int64_t{vectors} * wave * kPacketBytes * packets;
}
constexpr std::int64_t group_lds_bytes(int threads, int vectors, int wave, DType x, DType weight) {
  return group_weight_bytes(vectors, wave, x, weight) +
         std::int64_t{threads} * (kPacketBytes / size_of(x)) * size_of(accumulate_type(x));
}

// In the workspace: for each row a pair (Σg, Σg·x̂) of every block that shares it. The mask has no
// say: without dx the exchange is idle work, but a branch around it would cost registers.
constexpr std::int64_t group_slots_bytes(std::int64_t rows, int split) {
  return (rows * split * 8 + 63) / 64 * 64;
}

}  // namespace hipnorm::gpu
