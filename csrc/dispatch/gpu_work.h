// What the predictions for GPUs share: one launch, described by what it moves and computes, and the
// time that a device takes for it. Constants: gpu_costs.h.
#pragma once

#include <algorithm>

#include "csrc/dispatch/arithmetic.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/gpu_costs.h"

namespace hipnorm {

inline double known(double value, double otherwise) { return value > 0 ? value : otherwise; }

// Of one config for one problem on one device.
class GpuWorkModel {
 public:
  GpuWorkModel(const Config& config, const Problem& problem, const Device& device)
      : config_(config),
        problem_(problem),
        device_(device),
        limits_(device),
        kernel_(config, problem, limits_),
        costs_(costs_of(device, limits_)),
        plan_(plan_gpu(config, problem, device, false)),
        resident_(static_cast<double>(resident_by_formula(kernel_, problem, device, limits_))),
        units_(std::max(1, device.compute_units)),
        bandwidth_(known(device.bandwidth, 1e12)),
        unit_bandwidth_(known(device.unit_bandwidth, bandwidth_ / (0.8 * units_))),
        cache_(static_cast<double>(std::max(device.llc_bytes, device.l2_bytes))),
        launch_(known(device.launch_seconds, 3e-6)),
        rows_(static_cast<double>(problem.rows)),
        elements_(rows_ * static_cast<double>(problem.cols)),
        row_bytes_(static_cast<double>(problem.cols) * size_of(problem.x)),
        tensor_(elements_ * size_of(problem.x)) {}

 protected:
  // One launch.
  struct Work {
    double memory = 0;      // bytes to and from memory
    double cached = 0;      // bytes that the last shared cache has
    double parameters = 0;  // bytes of weights and biases, from L2
    double ops = 0;         // of all lanes
    double blocks = 1;      // at work at the same time
    double unit_rate = 0;   // bytes/s that one unit could move
    double stretch = 1;     // the slowest block's time over the average
    double least = 0;       // seconds that it takes however little it moves
    double efficiency = 1;  // of the bandwidth that it reaches when nothing else holds it back
  };
  double units_busy(double blocks) const { return std::min(units_, std::max(1.0, blocks)); }
  double seconds(const Work& work) const {
    const double busy = units_busy(work.blocks);
    const double reach = busy * std::min(work.unit_rate, unit_bandwidth_);
    const double memory = work.memory / std::min(bandwidth_ * work.efficiency, reach);
    const double cached =
        work.cached / std::min(costs_.cached_rate, reach * costs_.cached_rate / bandwidth_);
    const double moving = std::max(memory, cached) + kUnhidden * std::min(memory, cached);
    const double parameters = work.parameters / (costs_.l2_rate * busy / units_);
    const double arithmetic = work.ops / (busy * lane_rate());
    return std::max(work.stretch * std::max({moving, parameters, arithmetic}), work.least) +
           costs_.first_data;
  }
  void add(const Work& work) {
    total_.bytes += work.memory;
    total_.seconds += launch_ + seconds(work);
  }
  double lane_rate() const { return costs_.lane_rate / (problem_.x == DType::f64 ? 2 : 1); }

  // Blocks that come one after another and move `trip` bytes each, of which `loaded` come first,
  // and that load nothing for `idle` seconds. Nobody waits for stores.
  double trips(double blocks, double trip, double loaded, double idle) const {
    const double each = blocks / units_busy(blocks);
    return each * trip / (idle + loaded / unit_bandwidth_);
  }
  // The part of the bandwidth that blocks reach which read `bytes` as a whole.
  double rows_at_once(double bytes, bool ahead) const {
    const double more = std::max(0.0, bytes - kRowAtOnce);
    return 1 - costs_.row_loss * (ahead ? kAheadLoss : 1) * more / (more + kRowScale);
  }

  // Loads in flight in a unit, when each byte loaded stands for `traffic` bytes moved.
  double loads(double bytes, double traffic) const {
    const double share = bandwidth_ / (0.8 * units_);
    const double missing = std::max(0.0, costs_.in_flight - bytes) / costs_.in_flight;
    const double linear = bytes / costs_.load_latency * traffic;
    return std::min(linear, share * (1 - 0.36 * missing));
  }

  // What a block costs beside its rows: the last ones run while others idle.
  double stretch(double blocks, double resident) const {
    if (blocks <= resident) return 1;
    const double waves = blocks / resident;
    return 1 + 0.5 * (std::ceil(waves) - waves) / waves;
  }
  double persistent_stretch() const {
    const double groups = static_cast<double>(plan_.groups), units = double(kernel_.units);
    const double steps = ceil_div(ceil_div(units, groups), kernel_.together);
    return std::max(1.0, groups * steps * kernel_.together / units);
  }

  // Splits `bytes` that have just been read, with `footprint` bytes touched since, between memory
  // and the shared cache.
  void read_again(Work& work, double bytes, double footprint) const {
    const double size = footprint / std::max(1.0, cache_);
    const double hit = std::clamp((kOutOfCache - size) / (kOutOfCache - kSureOfCache), 0.0, 1.0);
    work.cached += hit * bytes;
    work.memory += (1 - hit) * bytes;
  }
  // Operations of the lanes of `waves` waves that each sum twice over `lanes` lanes.
  double trip_ops(double waves, double lanes) const {
    return waves * limits_.wave * (kTripOps + 2 * kLevelOps * std::log2(std::max(2.0, lanes)));
  }

  // Weights (and bias) that each of `times` blocks reads. Those that a unit's own cache keeps cost
  // next to nothing.
  void parameters(Work& work, double times) const {
    const int count = problem_.is_backward() ? problem_.has_weight && problem_.grads.dx
                                             : problem_.has_weight + problem_.has_bias;
    const double bytes = count * static_cast<double>(problem_.cols) * size_of(problem_.weight);
    const double own = units_busy(times);
    work.parameters += bytes * (bytes <= costs_.l1_bytes ? std::min(times, own) : times);
  }

  const Config& config_;
  const Problem& problem_;
  const Device& device_;
  const GpuLimits limits_;
  const GpuKernel kernel_;
  const GpuCosts costs_;
  const Plan plan_;
  const double resident_;
  const double units_, bandwidth_, unit_bandwidth_, cache_, launch_;
  const double rows_, elements_, row_bytes_, tensor_;
  Cost total_;
};

}  // namespace hipnorm
