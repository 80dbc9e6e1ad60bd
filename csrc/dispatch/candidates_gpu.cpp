// Enumerates the GPU configs that may win: for each way of laying a row over lanes the fewest
// threads that hold it, for each way of sharing rows what fills the device.
#include "csrc/dispatch/candidates_gpu.h"

#include <algorithm>

#include "csrc/dispatch/arithmetic.h"
#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/validate.h"
#include "kernels/gpu/columns_layout.h"
#include "kernels/gpu/group_layout.h"
#include "kernels/gpu/ring_layout.h"

namespace hipnorm {
namespace {

// Bytes of one step of a ring in one block: smaller ones are all overhead, larger ones leave no
// room for several.
constexpr std::int64_t kSmallestStep = 2 * 1024, kLargestStep = 64 * 1024;
// A ring's loads under way in a unit beside the step that is summed and the one that is applied:
// 32–40 KB reach the full rate, much more helps nothing (H200). Fewer than four stages leave no
// slack between blocks.
constexpr std::int64_t kRingInFlight = 36 * 1024;
constexpr int kRingStages = 4;

// Rows that one lane's sum should take at most: rounding errors grow like √rows.
constexpr std::int64_t kRowsPerSum = 4096;
constexpr std::int64_t kMostParts = 1024;

// Of last-level cache that is at hand on any GPU.
constexpr std::int64_t kAnyCache = 1 << 20;

class Candidates {
 public:
  Candidates(const Problem& problem, const Device& device)
      : problem_(problem),
        device_(device),
        limits_(device),
        chunks_(std::max<std::int64_t>(1, gpu::chunks_of_row(problem))) {}

  std::vector<Config> list() {
    list_.reserve(128);
    if (problem_.op == Op::forward) {
      wave_variant(Variant::gpu_forward_wave, gpu::kForwardWave);
      row_variant(Variant::gpu_forward_row);
      ring_variant(Variant::gpu_forward_ring);
      stream_variant();
      return std::move(list_);
    }
    if (problem_.op != Op::backward_two_kernel) {
      wave_variant(Variant::gpu_backward_wave, gpu::kBackwardWave);
      row_variant(Variant::gpu_backward_row);
      ring_variant(Variant::gpu_backward_ring);
    }
    if (problem_.op != Op::backward_fused) {
      two_kernel_variant();
      roles_variant();
    }
    if (problem_.op != Op::backward_fused || list_.empty()) sums_first_variant();
    if (problem_.op != Op::backward_two_kernel) group_variant();
    return std::move(list_);
  }

 private:
  void add(const Config& config) {
    if (!list_.empty() && list_.back() == config) return;
    if (!validate(config, problem_, device_)) list_.push_back(config);
  }
  // Whole waves, two of 32 at least; more than any block has where a row is that long.
  int waves_for(std::int64_t lanes) const {
    const std::int64_t threads = ceil_div(lanes, limits_.wave) * limits_.wave;
    return static_cast<int>(std::clamp<std::int64_t>(threads, 64, 4096));
  }

  void wave_variant(Variant variant, std::span<const gpu::Instance> instances) {
    if (chunks_ > std::int64_t{instances.back().vectors} * limits_.wave) return;
    for (int lanes = limits_.wave; lanes >= 1; lanes /= 2) {
      if (chunks_ > std::int64_t{instances.back().vectors} * lanes) break;
      if (chunks_ <= lanes / 2) continue;  // half of them would idle
      const int fewest = lanes < 4 || !problem_.is_backward() ? 64 : 128;
      for (int threads = 256; threads >= fewest; threads /= 2) {
        Config config{.variant = variant, .threads = threads};
        config.rows_per_block = threads / lanes;
        add(config);
      }
    }
  }

  void row_variant(Variant variant) {
    for (int stages = 1; stages <= 2; ++stages) {
      int last = 0;
      for (const gpu::Instance& instance : row_instances(variant, problem_, stages, limits_.amd)) {
        int threads = waves_for(ceil_div(chunks_, instance.vectors));
        if (threads > info(variant).threads.high) continue;
        if (gpu::takes_packets(problem_, stages, limits_.amd) && problem_.is_backward() &&
            gpu::keeps_in_lds(instance.vectors, problem_.x)) {
          threads = gpu::kThreadsWithLds;
          const auto instances = row_instances(variant, problem_, stages, limits_.amd);
          if (gpu::instance_for(instances, chunks_, threads) != &instance) continue;
        }
        if (threads == last) break;  // the narrower instance holds the row
        last = threads;
        Config config{.variant = variant, .threads = threads};
        config.stages = stages;
        add(config);
      }
    }
  }

  void ring_variant(Variant variant) {
    if (!device_.bulk_copies || problem_.x == DType::f64) return;
    // 16 only where 8 do not do: an eighth of the units lie in parts of the chip too small for it.
    const std::size_t before = list_.size();
    for (const int split : {1, 2, 3, 4, 6, 8}) ring_split(variant, split);
    if (list_.size() == before) ring_split(variant, 16);
  }
  void ring_split(Variant variant, int split) {
    if (split > limits_.max_cluster) return;
    const bool backward = problem_.is_backward();
    const std::int64_t slice = gpu::ring_slice(chunks_, split);
    int last_threads = 0;
    for (const gpu::Instance& instance : gpu::ring_instances(problem_)) {
      const int threads = waves_for(ceil_div(slice, instance.vectors));
      if (threads > instance.max_threads) continue;
      if (threads == last_threads) break;  // the narrower instance holds the slice
      last_threads = threads;
      for (int rows = 1; rows <= (backward ? 4 : 1); rows *= 2) {
        if (!gpu::ring_takes_rows(instance.vectors, rows)) break;
        const std::int64_t step = slice * gpu::kPacketBytes * rows * (backward ? 2 : 1);
        if (step > kLargestStep || (step < kSmallestStep && rows < 4 && backward)) continue;
        Config config{.variant = variant, .threads = threads};
        config.rows_per_block = backward ? rows : 0;
        config.split = split;
        // Alone in a unit, or two beside each other.
        const std::size_t before = list_.size();
        int last = 0;
        for (int blocks = 1; blocks <= 2; ++blocks) {
          const auto under_way = std::min<std::int64_t>(6, ceil_div(kRingInFlight, blocks * step));
          config.stages = std::max(kRingStages, 2 + static_cast<int>(under_way));
          if (config.stages != last) add(config);
          last = config.stages;
        }
        while (list_.size() == before && --config.stages >= 2) add(config);
      }
    }
  }

  // The fewest blocks that hold a row, with all threads that have registers, and with half of them:
  // more groups.
  void group_variant() {
    const Variant variant = Variant::gpu_backward_group;
    std::int64_t last = 0;
    for (const gpu::Instance& instance : gpu::group_instances(problem_.x)) {
      const std::int64_t split = ceil_div(chunks_, std::int64_t{instance.vectors} * limits_.wave);
      if (split < 2 || split > info(variant).split.high) continue;
      if (split == last) break;  // the narrower instance holds the slice
      last = split;
      for (const int threads : {limits_.bound(instance), limits_.bound(instance) / 2}) {
        Config config{.variant = variant, .threads = threads};
        config.split = static_cast<int>(split);
        add(config);
      }
    }
  }

  void stream_variant() {
    for (const int threads : {256, 512}) {
      add({.variant = Variant::gpu_forward_stream, .threads = threads});
    }
  }

  // Parts that fill the device twice, once and half, and one.
  template <typename F>
  void each_parts(Variant variant, int threads, F f) const {
    const std::int64_t strips = gpu::column_strips(variant, problem_, threads);
    const int depth = gpu::column_shape(variant, problem_, threads).depth;
    const std::int64_t period =
        variant == Variant::gpu_backward_sums_first ? gpu::shift_period(problem_) : std::int64_t{1};
    const std::int64_t units = std::clamp(device_.compute_units, 1, 1 << 16);
    const std::int64_t fewest = std::min(kMostParts, ceil_div(problem_.rows, kRowsPerSum * depth));
    std::int64_t last = 0;
    for (const std::int64_t filled : {units * 4, units * 2, units, std::int64_t{1}}) {
      std::int64_t parts = std::clamp(ceil_div(filled, strips), fewest, kMostParts);
      parts = std::min(ceil_div(parts, period) * period, std::max<std::int64_t>(1, problem_.rows));
      if (parts == last) continue;
      last = parts;
      f(static_cast<int>(parts));
    }
  }

  // Blocks of both roles read x and dy at different times: only while a cache surely keeps them.
  void roles_variant() {
    const std::int64_t cache = std::max(device_.l2_bytes, device_.llc_bytes);
    if (problem_.tensor_bytes() > std::max(cache / 2, kAnyCache) / 3) return;
    for (const int threads : {256, 512}) {
      add({.variant = Variant::gpu_backward_roles, .threads = threads});
    }
  }

  void two_kernel_variant() {
    const Variant variant = Variant::gpu_backward_two_kernel;
    int last = 0;
    for (const gpu::Instance& instance : gpu::kBackwardRowDx) {
      const int threads = waves_for(ceil_div(chunks_, instance.vectors));
      if (threads > gpu::kMaxColumnThreads) continue;
      if (threads == last) break;
      last = threads;
      each_parts(variant, threads, [&](int parts) {
        Config config{.variant = variant, .threads = threads};
        config.parts = parts;
        add(config);
      });
    }
  }

  void sums_first_variant() {
    for (const int threads : {256, 512}) {
      each_parts(Variant::gpu_backward_sums_first, threads, [&](int parts) {
        Config config{.variant = Variant::gpu_backward_sums_first, .threads = threads};
        config.parts = parts;
        add(config);
      });
    }
  }

  const Problem& problem_;
  const Device& device_;
  const GpuLimits limits_;
  const std::int64_t chunks_;
  std::vector<Config> list_;
};

}  // namespace

std::vector<Config> gpu_candidates(const Problem& problem, const Device& device) {
  std::vector<Config> list;
  if (has_work(problem)) list = Candidates(problem, device).list();
  if (list.empty()) {
    const Config config = plainest_gpu(problem, device);
    if (!validate(config, problem, device)) list.push_back(config);
  }
  return list;
}

Config plainest_gpu(const Problem& problem, const Device&) {
  const bool forward = problem.op == Op::forward;
  Config config{.variant = forward ? Variant::gpu_forward_stream : Variant::gpu_backward_sums_first,
                .threads = 256};
  // Rows of a part have one alignment.
  if (!forward) {
    config.parts = static_cast<int>(
        std::clamp<std::int64_t>(problem.rows, 1, std::max(1, gpu::shift_period(problem))));
  }
  return config;
}

}  // namespace hipnorm
