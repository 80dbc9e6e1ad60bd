// The prediction. Every constant of the model stands at the top, with its reason.
#include "csrc/dispatch/cost_model.h"

#include <algorithm>

#include "csrc/dispatch/arithmetic.h"
#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/workspace.h"

namespace hipnorm {
namespace {

// A byte from a core's caches costs a quarter of a byte from memory: with all cores busy a core
// gets 5–10 GB/s of memory and 20–40 GB/s of L2 or its share of the last level.
constexpr double kCachedCost = 0.25;

// Data stays in a cache when it takes three quarters of it; the rest is for stores, weights and the
// caches' imperfect replacement.
constexpr double kUsableCache = 0.75;

// Rows that are formed together are read twice; those that come next are fetched beside them, and
// accumulators and weights pass through: all of it may take four fifths of what one unit can call
// its own of the caches. (Backward on two cores, ms with 1, 2 and 4 rows together. Emerald Rapids,
// 2 MB of L2 each: f32 2304x36864 47, 44 and 60; f32 4608x40920 93 and 104; bf16 4608x40920 78, 49
// and 61. Zen 4, 1 MB of L2 but 32 MB of L3, with 1 and 4: f32 2304x36864 37 and 28, f32
// 1152x103008 49 and 40.)
constexpr double kBlockCache = 0.8;

// Cores with more L2 than this have a last level that is far away and everybody's (Intel's servers;
// a virtual machine of two such cores is told of 300 MB): from there lines come no faster than from
// memory, and plain stores never pay (f32 forward of 2048x4096, 64 MB read and written: 4.9 ms, 2.8
// with stores around the caches). Others have their last level next to them (AMD's: 16 MB and more
// for eight cores).
constexpr double kLargeL2 = 1024 * 1024;

// Two rows that are normalised together share the loads and conversions of weight and bias: a third
// less of the second pass's arithmetic where elements are converted (forward on two cores of a Zen
// 4, two rows against one: f16 2304x16384 3.5 and 4.3 ms, 1024x131072 13.7 and 17.5; bf16
// 1024x103008 11.5 and 13.6; f16 32768x768 2.7 and 3.3). f32 has no conversions to share
// (2304x16384: 8.8 and 7.0).
constexpr double kPairedPass = 0.65, kCrowdedPass = 1.1;

// Rows worked on together, whose lines are read in turns, cost more where they are short and come
// from beyond L2: the processor does not fetch ahead so far. Two cores of a Zen 5, µs for 1, 2
// and 4 rows together: backward f32 20000x64 342, 290, 452; 20000x256 1226, 1772, 1544; f16
// 4000x1000 437, 538, 599; forward bf16 4000x1024 244 and 350. From 8 KB on more rows are better:
// they share the loads and stores of column sums.
constexpr double kMingledRow = 3072, kMingledPairs = 512, kMingled = 1.5;

// Rows up to about this size go one in each lane in the kernels: the more lanes the better.
constexpr double narrow_bytes(DType x) { return x == DType::f64 ? 192 : 128; }

// Arithmetic of one pass over one row's elements (f32, 32-byte vectors): 2 loads and about 4
// operations on 8 elements, some 2.5 cycles at 3 GHz. Less than memory costs, but not hidden by it
// altogether: the processor does not look far enough ahead at the ends of rows.
constexpr double kPassSeconds = 0.1e-9;

// One addition into an accumulator row that lies in cache: load, add, store, 8 elements in 2.5
// cycles. Rows whose sums are formed together share it.
constexpr double kAccumulateSeconds = 0.1e-9;

// Vectors half as wide take nearly twice the instructions. 64 bytes win over 32 where there is
// arithmetic to save: backward (f32 512x2048 on Zen 4: 160 against 172 us) and bf16 (2304x36864
// forward: 8.2 against 11.4 ms). In f32 forward loads are the limit: Emerald Rapids wins by 64
// bytes (2304x16384: 12.7 against 14.3 ms), Zen 4 loses less (2304x36864: 17.3 against 16.7). Not
// in f16 forward, where conversions are, which take twice as long for twice the width (9.2
// against 8.7).
constexpr double width_factor(int vec_bytes, const Problem& problem) {
  if (vec_bytes <= 16) return 1.8;
  if (vec_bytes == 32) return 1.0;
  if (static_cast<double>(problem.cols) * size_of(problem.x) <= narrow_bytes(problem.x)) {
    return 0.7;
  }
  if (problem.x == DType::bf16 || problem.is_backward()) return 0.93;
  return problem.x == DType::f16 ? 1.02 : 0.97;
}

// 16-bit elements are half the bytes but are widened and rounded; f64 fills twice the vectors.
constexpr double element_factor(DType x) { return x == DType::f32 ? 1.0 : 2.0; }
// The accumulators are f32 for 16-bit elements too.
constexpr double accumulator_factor(DType x) { return x == DType::f64 ? 2.0 : 1.0; }

// Lost at each start of a column strip's row: about 4 cache lines until the prefetchers follow.
constexpr double kSegmentBytes = 256;

// For what Device does not know (0): a small core of the last ten years.
struct Machine {
  double units, l2, llc, share, bandwidth, unit_bandwidth, launch;

  explicit Machine(const Device& device)
      : units(std::max(1, device.compute_units)),
        l2(known(device.l2_bytes, 512.0 * 1024)),
        // Of the last level what is worth having.
        llc(l2 > kLargeL2 ? l2 * units : std::max(known(device.llc_bytes, 8.0 * 1024 * 1024), l2)),
        // What one unit can call its own: its L2 or its part of the last level.
        share(std::max(l2, llc / units)),
        bandwidth(known(device.bandwidth, 20e9)),
        unit_bandwidth(std::min(bandwidth, known(device.unit_bandwidth, 10e9))),
        launch(known(device.launch_seconds, 5e-6)) {}

  static double known(double value, double otherwise) { return value > 0 ? value : otherwise; }
  double bandwidth_of(double busy) const {
    return busy >= units ? bandwidth : std::min(bandwidth, busy * unit_bandwidth);
  }
};

bool block_stays_in_cache(const Config& config, const Problem& problem, double cache) {
  const int sums = problem.grads.dweight + problem.grads.dbias;
  const double row = 2.0 * static_cast<double>(problem.cols) * size_of(problem.x);
  const double beside = static_cast<double>(problem.cols) *
                        (sums * size_of(accumulate_type(problem.x)) + size_of(problem.weight));
  return 2 * row * std::max(1, config.rows_per_block) + beside <= cache * kBlockCache;
}

// One parallel_for.
struct Phase {
  double bytes = 0;    // to and from memory
  double cached = 0;   // read again from a cache
  double compute = 0;  // seconds of one unit, were it alone
  double slowest = 1;  // the busiest unit's part of all of it
  double tasks = 1;
};

class Model {
 public:
  Model(const Config& config, const Problem& problem, const Device& device)
      : config_(config),
        problem_(problem),
        machine_(device),
        parts_(std::max(1, config.parts)),
        split_(std::max(1, config.split)),
        rows_(static_cast<double>(problem.rows)),
        cols_(static_cast<double>(problem.cols)),
        tensor_(rows_ * cols_ * size_of(problem.x)),
        pass_(rows_ * cols_ * kPassSeconds * element_factor(problem.x) *
              width_factor(config.vec_bytes, problem)),
        sums_(problem.grads.dweight + problem.grads.dbias),
        // P × N partial sums, written once and read once.
        partials_(partial_bytes(config, problem)) {}

  Cost cost() {
    switch (info(config_.variant).form) {
      case Form::row: problem_.is_backward() ? backward_row() : forward_row(); break;
      case Form::split_row: forward_split(); break;
      case Form::two_kernel: two_kernel(); break;
      case Form::sums_first: sums_first(); break;
    }
    return total_;
  }

 private:
  static double partial_bytes(const Config& config, const Problem& problem) {
    const auto sizes = workspace<double>(config, problem, config.parts);
    return sizes.dweight + sizes.dbias;
  }

  bool resident(double bytes, double cache) const { return bytes <= cache * kUsableCache; }

  // Memory traffic of writing one tensor. A plain store reads the line first; that costs nothing
  // while all that the call reads and writes fits in the last level, and a store around the caches
  // would make its next reader fetch it from memory. Beyond that, a reader who starts at the
  // output's beginning finds nothing of it: what came later has displaced it.
  double store_bytes() const {
    const bool plain = config_.stream == 0;
    const bool fits = tensor_ * (problem_.is_backward() ? 3 : 2) <= machine_.llc;
    return tensor_ * (plain == fits ? 1 : 2);
  }

  // What reading `tensors` of them costs more, because rows_per_block rows are read in turns.
  double mingled(double tensors) const {
    const double together = std::max(1, config_.rows_per_block), row = tensor_ / rows_;
    const bool many =
        problem_.is_backward() ? row >= kMingledPairs || together > 2 : size_of(problem_.x) == 2;
    const bool is = together > 1 && many && together * row >= kMingledPairs && row <= kMingledRow &&
                    (tensors + 1) * tensor_ > machine_.l2 * machine_.units;
    return is ? kMingled : 1;
  }

  // The busiest unit's part of the whole, when `parts` × `split` tasks share rows × columns.
  double slowest(double parts, double split) const {
    const double groups = static_cast<double>(column_groups(problem_.cols));
    const double task = ceil_div(rows_, parts) / rows_ * ceil_div(groups, split) / groups;
    return std::min(1.0, ceil_div(parts * split, machine_.units) * task);
  }
  Phase rows_phase() const { return {.slowest = slowest(parts_, 1), .tasks = parts_}; }
  Phase strips_phase() const {
    return {.slowest = slowest(parts_, split_), .tasks = parts_ * split_};
  }

  void add(const Phase& phase) {
    const double busy = std::min(phase.tasks, machine_.units);
    const double moved = phase.bytes + phase.cached * kCachedCost;
    total_.bytes += phase.bytes;
    total_.seconds += phase.slowest * (busy * moved / machine_.bandwidth_of(busy) + phase.compute);
    if (phase.tasks > 1) total_.seconds += machine_.launch;
  }

  // `bytes` that an earlier phase or pass has read: from cache where `footprint`, what one unit
  // touches in between, stays there.
  void reread(Phase& phase, double bytes, double footprint) const {
    (resident(footprint, machine_.share) ? phase.cached : phase.bytes) += bytes;
  }

  // Sums over rows, accumulated in rows of `width` elements beside `beside` bytes of other data.
  // Where they do not stay in cache, every pass over them but the first is read and written.
  void accumulate(Phase& phase, double width, double beside, double rows_together) const {
    const double each = sums_ * size_of(accumulate_type(problem_.x));
    phase.compute += sums_ * rows_ * cols_ * kAccumulateSeconds * accumulator_factor(problem_.x) *
                     width_factor(config_.vec_bytes, problem_) / rows_together;
    if (each * width + beside > machine_.share * kBlockCache) {
      const double passes = ceil_div(ceil_div(rows_, parts_), rows_together);
      phase.bytes += 2 * each * cols_ * parts_ * (passes - 1);
    }
    phase.bytes += partials_;
  }

  void reduce_partials() {
    if (sums_ == 0) return;
    Phase phase = strips_phase();
    phase.slowest = slowest(1, std::min(phase.tasks, machine_.units));
    phase.bytes = partials_;
    add(phase);
  }

  void forward_row() {
    Phase phase = rows_phase();
    phase.bytes = mingled(1) * tensor_ + store_bytes();
    const double row = tensor_ / rows_;
    reread(phase, resident(row, machine_.l2) ? 0 : tensor_, row);
    const bool pairs_pay = size_of(problem_.x) == 2;
    const double second = config_.rows_per_block < 2 ? 1 : pairs_pay ? kPairedPass : kCrowdedPass;
    phase.compute = mingled(1) * (1 + second) * pass_;
    add(phase);
  }

  void forward_split() {
    Phase sums = strips_phase();
    sums.bytes = tensor_;
    sums.compute = pass_;
    add(sums);
    Phase write = strips_phase();
    write.bytes = store_bytes();
    reread(write, tensor_, tensor_ * write.slowest);
    write.compute = pass_;
    add(write);
  }

  // Rows of x and dy, twice where dx needs their sums first.
  void backward_rows(Phase& phase) const {
    if (!problem_.grads.dx) return;
    const double row = 2 * tensor_ / rows_;
    phase.bytes += store_bytes();
    reread(phase, resident(row, machine_.l2) ? 0 : 2 * tensor_, row);
    phase.compute += pass_;
  }

  // Rows that share one pass over the accumulators: all of them must still be in cache for their
  // second pass. Those that are not are read again from memory.
  double rows_together() const {
    const bool stays = block_stays_in_cache(config_, problem_, machine_.share);
    return stays ? std::max(1, config_.rows_per_block) : 1;
  }
  double overflow_of_block() const {
    return rows_together() < config_.rows_per_block && problem_.grads.dx
               ? 2 * tensor_ * (1 - 1.0 / config_.rows_per_block)
               : 0;
  }

  void backward_row() {
    Phase phase = rows_phase();
    phase.bytes = mingled(2) * 2 * tensor_ + overflow_of_block();
    phase.compute = pass_;
    backward_rows(phase);
    if (sums_ > 0) accumulate(phase, cols_, 2 * tensor_ / rows_, rows_together());
    phase.compute *= mingled(2);
    add(phase);
    reduce_partials();
  }

  // Column strips read x and dy once, row by row, `width` elements at a time.
  Phase column_strips() const {
    Phase phase = strips_phase();
    const double width = ceil_div(cols_, split_);
    if (split_ > 1) phase.cached += 2 * rows_ * split_ * kSegmentBytes;
    phase.bytes += (mingled(2) - 1) * 2 * tensor_;  // our callers add the rest
    phase.compute = pass_;
    if (sums_ > 0) accumulate(phase, width, 0, std::max(1, config_.rows_per_block));
    phase.compute *= mingled(2);
    return phase;
  }

  void two_kernel() {
    if (sums_ > 0) {
      Phase columns = column_strips();
      columns.bytes += 2 * tensor_;
      add(columns);
      reduce_partials();
    }
    if (!problem_.grads.dx) return;
    Phase rows = rows_phase();
    if (sums_ > 0) {
      reread(rows, 2 * tensor_, 2 * tensor_ * rows.slowest);
    } else {
      rows.bytes = 2 * tensor_;
    }
    rows.bytes += overflow_of_block();
    rows.compute = pass_;
    backward_rows(rows);
    add(rows);
  }

  void sums_first() {
    Phase strips = column_strips();
    if (problem_.grads.dx) {
      Phase sums{.slowest = slowest(1, split_), .tasks = split_};
      sums.bytes = 2 * tensor_;
      sums.compute = pass_;
      add(sums);
      reread(strips, 2 * tensor_, 2 * tensor_ * strips.slowest);
      strips.bytes += store_bytes();
    } else {
      strips.bytes += 2 * tensor_;
    }
    add(strips);
    reduce_partials();
  }

  const Config& config_;
  const Problem& problem_;
  const Machine machine_;
  const double parts_, split_;
  const double rows_, cols_;
  const double tensor_;  // bytes of x
  const double pass_;    // seconds of arithmetic in one pass over it, on one unit
  const double sums_;    // column gradients asked for: 0 to 2
  const double partials_;
  Cost total_;
};

}  // namespace

bool block_stays_in_cache(const Config& config, const Problem& problem, const Device& device) {
  return block_stays_in_cache(config, problem, Machine(device).share);
}

Cost predict(const Config& config, const Problem& problem, const Device& device) {
  if (problem.rows == 0 || problem.cols == 0) return {};
  if (device.kind == DeviceKind::gpu) {
    return has_work(problem) ? predict_gpu(config, problem, device) : Cost{};
  }
  return Model(config, problem, device).cost();
}

}  // namespace hipnorm
