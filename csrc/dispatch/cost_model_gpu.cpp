// The prediction for a GPU. LayerNorm is bound by memory: the time of a kernel is its bytes over a
// rate, and what this model has to find is how far a config falls short of the device's rate, by
// too few bytes in flight, by units without work, by what is read twice; and what it costs beside
// it: launches, the first data, partial sums. Constants: gpu_costs.h.
#include <algorithm>
#include <cmath>

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/gpu_costs.h"
#include "csrc/dispatch/gpu_work.h"
#include "kernels/gpu/columns_layout.h"

namespace hipnorm {
namespace {

class Model : GpuWorkModel {
 public:
  using GpuWorkModel::GpuWorkModel;

  Cost cost() {
    switch (config_.variant) {
      case Variant::gpu_forward_wave:
      case Variant::gpu_forward_row: forward_rows(); break;
      case Variant::gpu_forward_stream: forward_stream(); break;
      case Variant::gpu_backward_wave:
      case Variant::gpu_backward_row: backward_rows(); break;
      case Variant::gpu_forward_ring:
      case Variant::gpu_backward_ring: ring(); break;
      case Variant::gpu_backward_group: group(); break;
      case Variant::gpu_backward_two_kernel: two_kernel(); break;
      case Variant::gpu_backward_sums_first: sums_first(); break;
      case Variant::gpu_backward_roles: roles(); break;
      default: break;
    }
    return total_;
  }

 private:
  void reduce_parts(double parts) {
    const int sums = problem_.grads.dweight + problem_.grads.dbias;
    if (sums == 0) return;
    const double bytes =
        parts * static_cast<double>(plan_.pitch) * sums * size_of(accumulate_type(problem_.x));
    // Written by the kernel before, read by a kernel of its own, whose blocks take 128 bytes
    // across; both pass through the cache, if it holds them.
    Work work;
    work.blocks = bytes / parts / 128;
    work.unit_rate = unit_bandwidth_;
    read_again(work, bytes, bytes);
    total_.bytes += 2 * work.memory;
    total_.seconds += work.memory / bandwidth_ + work.cached / costs_.cached_rate;
    total_.seconds += launch_ + seconds(work) - 0.5 * costs_.first_data;
  }

  // Rows on registers of a block, or of part of it: `rows` rows of a block at a time.
  Work rows_work(double written, double ops, double rows, double sums, double ahead) const {
    const double read = (problem_.is_backward() ? 2 : 1) * tensor_;
    Work work;
    work.memory = read + written;
    const double lanes = std::min(kernel_.lanes, limits_.wave);
    work.ops = ops * elements_ +
               trip_ops(rows_ * ceil_div(kernel_.lanes * rows, limits_.wave) / rows, lanes);
    const double blocks = static_cast<double>(plan_.tasks);
    work.blocks = std::min(blocks, resident_);
    const double trip = work.memory / rows_ * rows;
    // Where the next rows' loads are not under way, nothing moves until this row's have come. (The
    // first row's are first_data.)
    const double idle =
        (1 - ahead) * costs_.load_latency + (kernel_.persistent ? 0 : costs_.block_start);
    const double turns = std::max(1.0, rows_ / rows / work.blocks);
    work.unit_rate =
        trips(work.blocks, trip, read / rows_ * rows, sums + idle * (turns - 1) / turns);
    work.stretch = kernel_.persistent ? persistent_stretch() : stretch(blocks, resident_);
    work.least = sums + trip / unit_bandwidth_;
    work.efficiency =
        rows_at_once(read / rows_, ahead > 0) * (1 - kLongChain * std::max(0, plan_.vectors - 4));
    return work;
  }

  // A row kernel for whole packets, whose next row is loaded in place of this one: `ahead` packets
  // a lane have registers of their own and are under way across the sums, which take `idle`
  // seconds. The rest of a row's time its loads keep the memory busy.
  void packet_rows(Work& work, double ahead, double tensors, double sums) const {
    const double each = work.blocks / units_busy(work.blocks);
    const double loaded = each * ahead * kernel_.threads * gpu::kPacketBytes * tensors;
    const double share = bandwidth_ / units_busy(work.blocks);
    const double row = each * work.memory / rows_;
    const double idle = std::max(0.0, sums - loaded / share);
    work.unit_rate = row / (row / unit_bandwidth_ + idle);
    work.efficiency = kPacketsRate / (1 + idle * share / row);
  }

  void forward_rows() {
    const bool wave = is_wave_variant(config_.variant);
    const double rows = wave ? config_.rows_per_block : 1;
    // Of the next row up to four packets a lane are under way, the others come as registers become
    // free.
    const double ahead = config_.stages > 1 ? std::min(1.0, 3.0 / std::max(1, plan_.vectors)) : 0;
    Work work = rows_work(tensor_, kForwardOps, rows,
                          wave ? costs_.reduction : 2 * costs_.reduction, ahead);
    if (kernel_.packets) {
      const double each = work.blocks / units_busy(work.blocks);
      const double sums =
          2 * costs_.reduction + 0.6 * each * kForwardOps * elements_ / rows_ / lane_rate();
      packet_rows(work, std::min(4, plan_.vectors), 1, sums);
    }
    if (device_.bulk_copies) {  // measured on sm_90 alone
      work.efficiency *= kForwardRow * (config_.stages > 1 ? kForwardRowAhead : 1) *
                         (plan_.vectors < 3   ? kForwardFewVectors
                          : plan_.vectors > 4 ? kForwardManyVectors
                                              : 1);
      const int waves = config_.threads / limits_.wave;
      if (wave) work.efficiency *= 1 - kForwardWaves * std::max(0, waves - 2);
    }
    parameters(work, ceil_div(rows_, rows));
    add(work);
  }

  void forward_stream() {
    Work work;
    work.memory = 2 * tensor_;
    work.ops = 1.5 * kForwardOps * elements_;
    const double blocks = static_cast<double>(plan_.tasks);
    work.blocks = std::min(blocks, resident_);
    read_again(work, tensor_, work.blocks * row_bytes_);
    const double idle = 2 * costs_.reduction + 2 * costs_.load_latency + costs_.block_start;
    const double each = work.blocks / units_busy(work.blocks);
    // A lane has some four packets under way.
    const double in_flight = std::min(row_bytes_, config_.threads * 64.0) * each;
    work.unit_rate =
        std::min(trips(work.blocks, 3 * row_bytes_, 2 * row_bytes_, idle), loads(in_flight, 1.5));
    work.stretch = stretch(blocks, resident_);
    work.least = idle + row_bytes_ / loads(in_flight / each, 1);
    work.efficiency = kReadTwice * rows_at_once(row_bytes_, false);
    // Measured on sm_90: 345 µs for 2048x50257 in bf16.
    if (device_.bulk_copies && problem_.alignment < gpu::kPacketBytes) work.efficiency *= 0.5;
    parameters(work, rows_);
    add(work);
  }

  void backward_rows() {
    const bool wave = is_wave_variant(config_.variant);
    // Loads under way pass through the registers that they come to: not quite for the whole row.
    const double ahead = wave || config_.stages > 1 ? 0.6 : 0;
    Work work = rows_work((problem_.grads.dx ? 1 : 0) * tensor_, kBackwardOps,
                          wave ? config_.rows_per_block : 1,
                          wave ? 0.5 * costs_.reduction : costs_.reduction, ahead);
    if (kernel_.packets) {
      const bool lds = gpu::keeps_in_lds(plan_.vectors, problem_.x);
      const int held = lds ? gpu::x_in_registers(plan_.vectors) : std::min(4, plan_.vectors);
      const double each = work.blocks / units_busy(work.blocks);
      // Where part of the row is in LDS, all of it is waited for before its sums begin.
      const double sums = costs_.reduction + (lds ? 0.5 : 0.25) * each * kBackwardOps * elements_ /
                                                 rows_ / lane_rate();
      packet_rows(work, held, 2, sums);
    }
    parameters(work, work.blocks);
    add(work);
    reduce_parts(static_cast<double>(plan_.groups));
  }

  void ring() {
    Work work;
    const bool backward = problem_.is_backward();
    const double reads = backward ? 2 : 1, writes = backward && !problem_.grads.dx ? 0 : 1;
    work.memory = (reads + writes) * tensor_;
    const double ops = ((backward ? kRingBackwardOps : kRingForwardOps) *
                        (problem_.alignment < gpu::kPacketBytes ? kRingUnaligned : 1)) -
                       (size_of(problem_.x) == 4 ? kRingConversionOps : 0);
    const double steps = rows_ / kernel_.together;
    const double levels = std::log2(static_cast<double>(limits_.wave * config_.split));
    const double step_ops = config_.threads * (kRingTripOps + 2 * kLevelOps * levels) *
                            (1 + kRingRowOps * (kernel_.together - 1));
    work.ops = ops * elements_ + step_ops * config_.split * steps;
    work.blocks = static_cast<double>(plan_.tasks);
    const double each = work.blocks / units_busy(work.blocks);
    // One step is being summed, one applied; the others' loads are under way.
    const double step_elements = kernel_.together * elements_ / rows_ / config_.split;
    const double step = step_elements * size_of(problem_.x);
    const double in_flight = each * reads * step * std::max(0.3, config_.stages - kRingBusyStages);
    // A step's two phases follow each other. Few waves do not fill the unit's issue slots, unless
    // each has several packets at hand; backward reads four one by one for lack of registers.
    const double waves = each * config_.threads / limits_.wave;
    const int at_hand = (backward && plan_.vectors > 3 ? 1 : plan_.vectors) * kernel_.together;
    const double filled = std::min(1.0, waves * (1 + kRingAtHand * (at_hand - 1)) / kRingWaves);
    const double exchange =
        config_.split == 1 ? costs_.own_exchange : costs_.exchange + 0.01e-6 * config_.split;
    const double step_seconds =
        exchange + each * (step_elements * ops + step_ops) / (lane_rate() * filled);
    work.unit_rate = std::min(loads(in_flight, (reads + writes) / reads),
                              each * step * (reads + writes) / step_seconds);
    work.efficiency = (backward ? costs_.ring_backward : costs_.ring_forward) *
                      (1 - kRingWaitForOthers * (config_.split - 1 + each - 1)) *
                      (backward && plan_.vectors > 3 ? kRingOneByOne : 1);
    work.stretch = persistent_stretch();
    work.least = 2 * step_seconds;
    parameters(work, work.blocks / config_.split);
    add(work);
    // The last step ends when nothing else moves any more.
    total_.seconds += 0.5 * (step_seconds + step * reads / unit_bandwidth_);
    if (backward) reduce_parts(static_cast<double>(plan_.groups));
  }

  // A wave's row is under way while its last is summed and the one before is written. The waves do
  // not wait for each other, but each for its group, once a step.
  void group() {
    Work work;
    const double writes = problem_.grads.dx ? 1 : 0;
    const double waves = config_.threads / limits_.wave;
    work.memory = (2 + writes) * tensor_;
    work.cached = 3 * 8 * rows_ * config_.split;  // slots: emptied, posted, asked for
    work.ops = kBackwardOps * elements_ + trip_ops(rows_ * config_.split, limits_.wave);
    work.blocks = static_cast<double>(plan_.tasks);
    const double each = work.blocks / units_busy(work.blocks);
    const double strip = row_bytes_ / config_.split;
    const double step = waves * strip * (2 + writes);  // bytes of a block
    const double step_ops =
        kBackwardOps * waves * strip / size_of(problem_.x) + trip_ops(waves, limits_.wave);
    const double step_seconds = costs_.exchange + each * step_ops / lane_rate();
    work.unit_rate =
        std::min(loads(each * waves * 2 * strip, (2 + writes) / 2), each * step / step_seconds);
    work.efficiency = kPacketsRate * (1 - kWaitForOthers * (config_.split - 1));
    work.stretch = persistent_stretch();
    work.least = 2 * step_seconds;
    parameters(work, work.blocks / config_.split);
    add(work);
    total_.seconds += launch_;  // of the memory node that empties the slots
    total_.seconds += 0.5 * step_seconds;
    reduce_parts(static_cast<double>(plan_.groups));
  }

  // Column strips, which walk down the rows. What they move is the caller's to add.
  Work columns(double parts) const {
    Work work;
    const gpu::ColumnShape shape = gpu::column_shape(config_.variant, problem_, config_.threads);
    const double strips = static_cast<double>(shape.strips);
    const double blocks = strips * parts;
    const double threads = config_.threads;
    work.ops = kSumOps * elements_;
    work.blocks = std::min(blocks, resident_);
    const double each = work.blocks / units_busy(work.blocks);
    // Four rows of x and dy under way in each lane.
    const double lane_rows = ceil_div(rows_, parts * shape.depth);
    const double under_way = std::min(4.0, lane_rows);
    work.unit_rate = loads(each * threads * 2 * gpu::kPacketBytes * under_way, 1);
    work.stretch = stretch(blocks, resident_);
    work.least = ceil_div(lane_rows, 4) * costs_.load_latency + 2 * costs_.reduction;
    return work;
  }

  void two_kernel() {
    const double parts = std::max(1, config_.parts);
    const bool sums = problem_.grads.columns();
    if (sums) {
      Work work = columns(parts);
      work.memory = 2 * tensor_;
      add(work);
      if (parts > 1) reduce_parts(parts);
    }
    if (!problem_.grads.dx) return;
    Work work;
    work.memory = tensor_;
    if (sums) {
      read_again(work, 2 * tensor_, 2 * tensor_);
    } else {
      work.memory += 2 * tensor_;
    }
    work.ops = kBackwardOps * elements_;
    work.blocks = std::min(rows_, resident_);
    const double idle = costs_.load_latency + costs_.reduction + costs_.block_start;
    work.unit_rate = trips(work.blocks, 3 * row_bytes_, 2 * row_bytes_, idle);
    work.stretch = stretch(rows_, resident_);
    work.least = idle + 3 * row_bytes_ / unit_bandwidth_;
    work.efficiency = rows_at_once(2 * row_bytes_, false);
    parameters(work, rows_);
    add(work);
  }

  // Rows of which nothing stays on the chip.
  Work row_sums() const {
    Work work;
    const double lanes = gpu::row_lanes(problem_, config_.threads, limits_.wave);
    const double blocks = ceil_div(rows_ * lanes, config_.threads);
    work.ops = kSumOps * elements_;
    work.blocks = std::min(blocks, resident_);
    const double each = work.blocks / units_busy(work.blocks);
    const double lane_packets = ceil_div(row_bytes_ / gpu::kPacketBytes, lanes);
    const double under_way = std::min(2.0, lane_packets);
    work.unit_rate = loads(each * config_.threads * 2 * gpu::kPacketBytes * under_way, 1);
    work.stretch = stretch(blocks, resident_);
    work.least = costs_.block_start + costs_.load_latency * ceil_div(lane_packets, 2);
    return work;
  }

  // Panels of rows, one after the other, so that the second kernel finds x and dy in the cache.
  void sums_first() {
    const double parts = std::max(1, config_.parts);
    const double panel = static_cast<double>(gpu::panel_rows(problem_, device_));
    const double panels = ceil_div(rows_, panel);
    Work strips = columns(parts);
    if (problem_.grads.dx) {
      Work sums = row_sums();
      sums.memory = 2 * tensor_;
      parameters(sums, sums.blocks);
      add(sums);
      read_again(strips, 2 * tensor_, 2 * tensor_ / panels);
      strips.memory += tensor_;
      strips.ops *= 2;
    } else {
      strips.memory = 2 * tensor_;
    }
    add(strips);
    const double launches = (problem_.grads.dx ? 2 : 1) * (panels - 1);
    total_.seconds += launches * (launch_ + costs_.first_data);
    if (parts > 1 || panels > 1) reduce_parts(parts);
  }

  // Column blocks and row blocks at the same time: the first to come reads from memory.
  void roles() {
    Work work;
    if (problem_.grads.columns()) work = columns(1);
    if (problem_.grads.dx) {
      const Work sums = row_sums();
      work.blocks = std::min(resident_, work.blocks + sums.blocks);
      work.unit_rate = std::max(work.unit_rate, sums.unit_rate);
      work.least = std::max(work.least, 2 * sums.least);
      work.ops += 2 * sums.ops;
      work.stretch = std::max(work.stretch, sums.stretch);
      work.memory = 3 * tensor_;
      read_again(work, (problem_.grads.columns() ? 2 : 0) * tensor_, 2 * tensor_);
    } else {
      work.memory = 2 * tensor_;
    }
    add(work);
  }
};

}  // namespace

Cost predict_gpu(const Config& config, const Problem& problem, const Device& device) {
  return Model(config, problem, device).cost();
}

}  // namespace hipnorm
