// The configs worth a try, and the default among them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <stdexcept>

#include "csrc/dispatch/arithmetic.h"
#include "csrc/dispatch/candidates_gpu.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/text.h"
#include "csrc/dispatch/validate.h"
#include "csrc/dispatch/workspace.h"

namespace hipnorm {
namespace {

// Elements that make a task worth its while, about 5 µs of one core: half of torch's grain size,
// since an element takes less than half the time that torch reckons with (512x256 on 16 cores).
constexpr std::int64_t kGrain = 16384;

// Rows that one accumulator should sum at most: rounding errors grow like √rows, so that 4096 rows
// cost 6 of f32's 24 bits, and the partial sums' own sum is short.
constexpr std::int64_t kRowsPerPart = 4096;

// … as long as the partial rows stay below this part of the traffic.
constexpr double kPartialShare = 0.02;

// How a problem may be dealt out, before any variant is looked at.
class Sharing {
 public:
  Sharing(const Problem& problem, const Device& device)
      : rows_(std::max<std::int64_t>(1, problem.rows)),
        groups_(std::max<std::int64_t>(1, column_groups(problem.cols))) {
    const double elements = static_cast<double>(problem.rows) * static_cast<double>(problem.cols);
    const std::int64_t units = std::clamp(device.compute_units, 1, 4096);
    tasks_ = std::clamp<std::int64_t>(std::int64_t(std::ceil(elements / kGrain)), 1, units);
    fills_ = tasks_ == units && units > 1;
    if (elements > kGrain && problem.is_backward() && problem.grads.columns()) {
      const double pitch = static_cast<double>(groups_ * kColumnGroup);
      const double cap = kPartialShare * 3 * elements * size_of(problem.x) / (16 * pitch);
      flush_ =
          std::clamp<std::int64_t>(ceil_div(rows_, kRowsPerPart), 1,
                                   std::max<std::int64_t>(1, std::int64_t(std::min(cap, 4096.0))));
    }
  }

  // Parts that alone fill the machine: every task the same number of parts.
  std::int64_t row_parts() const {
    const std::int64_t filled = ceil_div(std::max(tasks_, flush_), tasks_) * tasks_;
    return std::min({rows_, filled, 4096 / tasks_ * tasks_});
  }

  // Calls f(parts, split) for the ways of dealing out that `variant` has.
  template <typename F>
  void for_each(const VariantInfo& variant, F f) const {
    const bool has_parts = variant.parts.high > 0;
    const bool has_split = variant.split.high > 0;
    if (has_parts && has_split) {
      // From few parts of many strips to strips that are whole rows.
      const std::int64_t most = row_parts();
      for (std::int64_t parts = std::min(flush_, most); parts < most; parts *= 4) strips(parts, f);
      strips(most, f);
    } else if (has_parts) {
      multiples(row_parts(), rows_, [&](std::int64_t parts) { f(parts, std::int64_t{0}); });
    } else if (has_split) {
      multiples(std::min(tasks_, groups_), groups_,
                [&](std::int64_t split) { f(std::int64_t{0}, split); });
    } else {
      f(std::int64_t{0}, std::int64_t{0});
    }
  }

 private:
  // As many tasks as the problem is worth, and, where that fills the machine, two and four times.
  template <typename F>
  void multiples(std::int64_t base, std::int64_t most, F f) const {
    f(base);
    if (!fills_) return;
    for (std::int64_t n = 2 * base; n <= 4 * base && n <= std::min<std::int64_t>(most, 4096);
         n *= 2) {
      f(n);
    }
  }
  // Four times as many strips keep an accumulator row in a nearer cache.
  template <typename F>
  void strips(std::int64_t parts, F f) const {
    const std::int64_t split = std::min(ceil_div(tasks_, parts), groups_);
    f(parts, split);
    if (fills_ && 4 * split <= std::min<std::int64_t>(groups_, 4096)) f(parts, 4 * split);
  }

  std::int64_t rows_;
  std::int64_t groups_;
  std::int64_t tasks_ = 1;  // that the problem is worth, at most one a unit
  bool fills_ = false;      // it is worth all units: more tasks than units may balance better
  std::int64_t flush_ = 1;  // parts that its accumulators want
};

// Calls f(config) for every candidate of the CPU. The first of equals is the one to prefer: wide
// vectors, plain stores, few tasks.
template <typename F>
void for_each_cpu_candidate(const Problem& problem, const Device& device, F f) {
  const Sharing sharing(problem, device);
  const bool writes_tensor = !problem.is_backward() || problem.grads.dx;
  for (std::size_t i = 0; i < variants().size(); ++i) {
    const VariantInfo& variant = variants()[i];
    if (variant.kind != device.kind || !serves(variant, problem.op)) continue;
    const int widest =
        std::clamp(device.max_vec_bytes, variant.vec_bytes.low, variant.vec_bytes.high);
    const int most_rows = static_cast<int>(std::min<std::int64_t>(
        {4, variant.rows_per_block.high, std::max<std::int64_t>(1, problem.rows)}));
    sharing.for_each(variant, [&](std::int64_t parts, std::int64_t split) {
      Config config{.variant = static_cast<Variant>(i)};
      config.parts = static_cast<int>(parts);
      config.split = static_cast<int>(split);
      // A step from 0 ends the loop of a parameter that the variant does not have.
      int rows = most_rows == 0 ? 0 : static_cast<int>(std::bit_floor(unsigned(most_rows)));
      do {
        config.rows_per_block = rows;
        for (int vec = widest; vec >= variant.vec_bytes.low && 2 * vec >= widest; vec /= 2) {
          config.vec_bytes = vec;
          for (int stream = 0; stream <= (writes_tensor ? variant.stream.high : 0); ++stream) {
            config.stream = stream;
            if (!validate(config, problem, device)) f(config);
          }
        }
        rows /= 2;
      } while (rows > 0);
    });
  }
}

template <typename F>
void for_each_candidate(const Problem& problem, const Device& device, F f) {
  if (device.kind == DeviceKind::gpu) {
    for (const Config& config : gpu_candidates(problem, device)) f(config);
  } else {
    for_each_cpu_candidate(problem, device, f);
  }
}

}  // namespace

std::vector<Config> candidates(const Problem& problem, const Device& device) {
  struct Timed {
    Config config;
    double seconds;
  };
  std::vector<Timed> timed;
  timed.reserve(256);
  for_each_candidate(problem, device, [&](const Config& config) {
    timed.push_back({config, predict(config, problem, device).seconds});
  });
  std::stable_sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) {
    const bool a_waits = on_request_only(a.config.variant);
    const bool b_waits = on_request_only(b.config.variant);
    return a_waits != b_waits ? b_waits : a.seconds < b.seconds;
  });
  std::vector<Config> configs;
  configs.reserve(timed.size());
  for (const Timed& each : timed) configs.push_back(each.config);
  return configs;
}

Config default_config(const Problem& problem, const Device& device) {
  Config best = plainest_config(problem, device);
  double least = -1;
  for_each_candidate(problem, device, [&](const Config& config) {
    if (on_request_only(config.variant)) return;
    const double seconds = predict(config, problem, device).seconds;
    if (least >= 0 && seconds >= least) return;
    least = seconds;
    best = config;
  });
  return best;
}

Config plainest_config(const Problem& problem, const Device& device) {
  if (device.kind == DeviceKind::gpu) return plainest_gpu(problem, device);
  for (std::size_t i = 0; i < variants().size(); ++i) {
    if (variants()[i].kind != device.kind || !serves(variants()[i], problem.op)) continue;
    Config config{.variant = static_cast<Variant>(i)};
    for (const ConfigField& field : kConfigFields) {
      config.*field.value = (variants()[i].*field.limits).low;
    }
    return config;
  }
  throw std::invalid_argument(
      concat("hipnorm: there is no kernel for ", to_string(problem.op), " on ", device.arch));
}

}  // namespace hipnorm
