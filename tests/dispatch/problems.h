// Devices and problems for the dispatch tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "csrc/dispatch/device.h"
#include "csrc/dispatch/known_devices.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::test {

// A server processor: 1 MiB of L2 a core, 32 MiB of last level; one core reaches 15 GB/s, and eight
// of them saturate memory.
inline Device cpu(int threads, int vec_bytes) {
  Device device;
  device.arch = "cpu-test";
  device.kind = DeviceKind::cpu;
  device.compute_units = threads;
  device.max_vec_bytes = vec_bytes;
  device.l1_bytes = 32 << 10;
  device.l2_bytes = 1 << 20;
  device.llc_bytes = 32 << 20;
  device.unit_bandwidth = 15e9;
  device.bandwidth = 15e9 * (threads < 8 ? threads : 8);
  device.launch_seconds = 3e-6;
  return device;
}

// 1 to 128 threads, each vector width, and two that tell next to nothing of themselves.
inline const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> list;
    for (int threads : {1, 2, 16, 128}) {
      for (int vec_bytes : {16, 32, 64}) list.push_back(cpu(threads, vec_bytes));
    }
    list.emplace_back().arch = "cpu-unknown";
    Device absurd;
    absurd.arch = "cpu-absurd";
    absurd.compute_units = 0;
    absurd.max_vec_bytes = 0;
    list.push_back(absurd);
    return list;
  }();
  return all;
}

// The known ones, one small as the emulator's, one that tells nothing of itself, and four whose
// numbers cannot be.
inline const std::vector<Device>& gpus() {
  static const std::vector<Device> all = [] {
    std::vector<Device> list;
    for (const KnownDevice& known : known_devices()) list.push_back(known.device);
    Device small = known_device("H200");
    small.arch = "small";
    small.compute_units = 3;
    small.max_cluster = 8;
    list.push_back(small);
    Device unknown;
    unknown.arch = "gpu-unknown";
    unknown.kind = DeviceKind::gpu;
    list.push_back(unknown);
    for (const int value : {-1, 1, 7, 2147483647}) {
      Device absurd;
      absurd.arch = "gpu-absurd" + std::to_string(value);
      absurd.kind = DeviceKind::gpu;
      absurd.compute_units = absurd.max_vec_bytes = absurd.wave_size = absurd.max_threads = value;
      absurd.registers = absurd.max_cluster = value;
      absurd.l1_bytes = absurd.l2_bytes = absurd.llc_bytes = value;
      absurd.lds_bytes = absurd.unit_lds_bytes = value;
      absurd.bandwidth = absurd.unit_bandwidth = absurd.launch_seconds = value;
      absurd.bulk_copies = value > 0;
      list.push_back(absurd);
    }
    return list;
  }();
  return all;
}

inline Problem problem(Op op, DType x, std::int64_t rows, std::int64_t cols) {
  Problem p;
  p.op = op;
  p.x = x;
  p.weight = x;
  p.rows = rows;
  p.cols = cols;
  p.has_weight = p.has_bias = true;
  if (op != Op::forward) p.grads = {true, true, true};
  return p;
}

// The same with the alignment that contiguous rows have.
inline Problem contiguous(Op op, DType x, std::int64_t rows, std::int64_t cols) {
  Problem p = problem(op, x, rows, cols);
  while ((cols % 64 * size_of(x)) % p.alignment != 0) p.alignment /= 2;
  return p;
}

// Sizes around every border: empty, one, vector widths, column groups, 16 and 32 bits.
inline constexpr std::int64_t kEdges[] = {0,
                                          1,
                                          2,
                                          3,
                                          7,
                                          31,
                                          63,
                                          64,
                                          65,
                                          127,
                                          128,
                                          129,
                                          512,
                                          769,
                                          1000,
                                          4095,
                                          4096,
                                          4097,
                                          11776,
                                          65535,
                                          65536,
                                          103008,
                                          (1 << 20) - 1,
                                          (1 << 20) + 1,
                                          (std::int64_t{1} << 31) - 1,
                                          (std::int64_t{1} << 31) + 1,
                                          std::int64_t{1} << 40,
                                          (std::int64_t{1} << 57) + 1};

// Whether the elements can be counted: the largest problem that dispatch takes has 2^58.
inline bool countable(const Problem& p) {
  return p.cols == 0 || p.rows <= (std::int64_t{1} << 58) / p.cols;
}

// One that a caller may pose; everything drawn at random, sizes from the edges or in between.
inline Problem random_problem(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto size = [&]() -> std::int64_t {
    if (below(3) != 0) return kEdges[below(std::size(kEdges))];
    return static_cast<std::int64_t>(random() >> (24 + below(40)));
  };
  Problem p;
  do {
    p.rows = size();
    p.cols = size();
  } while (!countable(p));
  p.op = kOps[below(kOps.size())];
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  p.x = kTypes[below(4)];
  p.has_weight = below(2) != 0;
  p.has_bias = below(2) != 0;
  if (p.has_weight || p.has_bias) p.weight = below(2) != 0 ? p.x : accumulate_type(p.x);
  if (p.is_backward()) {
    p.grads.dx = below(4) != 0;
    p.grads.dweight = p.has_weight && below(4) != 0;
    p.grads.dbias = p.has_bias && below(4) != 0;
  }
  p.alignment = 1 << below(7);
  return p;
}

// Every op, dtype, full or single mask on every pair of edges, then `count` random ones.
template <typename F>
void for_each_problem(int count, F f) {
  for (Op op : kOps) {
    for (std::int64_t rows : kEdges) {
      for (std::int64_t cols : kEdges) {
        for (DType x : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
          const Problem p = problem(op, x, rows, cols);
          if (countable(p)) f(p);
        }
      }
    }
  }
  std::mt19937_64 random(20240229);
  for (int i = 0; i < count; ++i) f(random_problem(random));
}

}  // namespace hipnorm::test
