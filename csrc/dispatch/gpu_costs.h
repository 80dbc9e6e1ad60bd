// What the GPU cost model assumes beyond Device: every constant of it, with its source. First what
// holds of the kernels anywhere, then what an architecture is like.
#pragma once

#include <algorithm>

#include "csrc/dispatch/device.h"
#include "csrc/dispatch/gpu.h"

namespace hipnorm {

// Data is found again in the shared cache when it takes three quarters of it at most; nothing of it
// where it takes twice as much (rows come again in the order in which they were displaced).
inline constexpr double kSureOfCache = 0.75, kOutOfCache = 1.5;

// Instructions of one lane on one element, converted and rounded (from the kernels' instruction
// counts): forward 10, backward 15; one that only sums 7.
inline constexpr double kForwardOps = 10, kBackwardOps = 15, kSumOps = 7;

// A block that reads a row of more than 14 KB as a whole, and writes it as a whole, leaves up to a
// third of the bandwidth unused on an H200: the best public kernels that do so reach 0.97 of it at
// 16 KB (16384x8192 bf16 forward), 0.79 at 23, 0.84 at 32, 0.75 at 72 and 0.73 at 80 KB. Where the
// next row's loads are under way meanwhile, three quarters of that are assumed.
inline constexpr double kRowAtOnce = 14 * 1024, kRowScale = 10 * 1024, kAheadLoss = 0.75;

// Forward on registers, of the bandwidth, by this version's kernels on an H200, bf16: with four
// packets a lane 36 µs at 8192x4096 and 134 at 16384x8192, what a copy takes and 1.02 of it; with
// eight 38 and 137.5. With one or two, and with the next row's loads under way (1.03 to 1.08 of the
// time without, by an earlier form of the kernels), the figures are on the safe side, not fitted.
inline constexpr double kForwardRow = 0.98, kForwardRowAhead = 0.9, kForwardFewVectors = 0.85,
                        kForwardManyVectors = 0.97;

// The kernels for rows of whole packets keep loads under way all the time; what they reach of the
// copy's rate but for the gaps that the model finds. (An assumption: rings reach 0.955 to 1 on an
// H200.)
inline constexpr double kPacketsRate = 0.97;

// Blocks that share a row or a unit wait for the slowest of them. (An assumption; it decides
// between equals, for few and large blocks.)
inline constexpr double kWaitForOthers = 0.0015;

// What is read a second time is not all found in the cache that it should be in. (Likewise.)
inline constexpr double kReadTwice = 0.95;

// More than four packets of a lane follow each other. (Likewise.)
inline constexpr double kLongChain = 0.001;

// Instructions of a wave for each row or step beside its elements: addresses, masks, waiting; and
// for each level of a sum over lanes.
inline constexpr double kTripOps = 60, kLevelOps = 4;

// What comes from a cache hides behind what comes from memory, or the other way round, but for this
// part: both wait for the same queues. (Likewise.)
inline constexpr double kUnhidden = 0.3;

// forward_ring and backward_ring, which sm_90 alone has: fitted to 1200 times of 51 shapes (H200).
// The config that this chooses takes 1.02 × the time of the best of a later sweep of 39 cells
// (geometric mean), at worst 1.19 ×.
// Instructions of a lane for each element, so many times more of them where rows are not aligned,
// so many fewer where nothing is converted; of a lane for each step, and a part of those again for
// each further row of a step.
inline constexpr double kRingForwardOps = 5.6, kRingBackwardOps = 16.9, kRingUnaligned = 3.1,
                        kRingConversionOps = 5, kRingTripOps = 80, kRingRowOps = 0.38;
// Waves that fill a unit's issue slots; what a further packet at hand counts of a wave; stages that
// are in use; what the blocks of a row or unit lose by waiting for each other.
inline constexpr double kRingWaves = 14, kRingAtHand = 0.21, kRingBusyStages = 1.7,
                        kRingWaitForOthers = 0.006;
// More than three packets of a lane are read one by one in the backward, for lack of registers
// (4608x40920: bf16 310 µs with four, 284 with three; f32 621 with five, 541 with three).
inline constexpr double kRingOneByOne = 0.91;
// forward_wave (likewise): lost by each wave of a block beyond two.
inline constexpr double kForwardWaves = 0.015;

struct GpuCosts {
  double load_latency;  // seconds from a load to its data, memory busy
  double reduction;     // seconds of one sum over a block: shuffles, LDS, a barrier
  double block_start;   // seconds to start a block and set it up
  double exchange;      // seconds of a cluster's exchange of sums that nothing hides …
  double own_exchange;  // … of a block's
  double first_data;    // seconds until a kernel's first data has come
  double cached_rate;   // bytes/s from the last cache that all units share
  double l2_rate;       // bytes/s from L2
  double lane_rate;     // operations/s of one unit's lanes, f32
  double in_flight;     // bytes of loads under way in a unit that reach its full share
  double ring_forward;  // of the bandwidth that a persistent ring reaches
  double ring_backward;
  double row_loss;  // of the bandwidth, by blocks that load and store long rows as a whole
  double l1_bytes;  // in which a unit keeps weights and biases
};

inline GpuCosts costs_of(const Device& device, const GpuLimits& limits) {
  if (!limits.amd) {
    // Measured on an H200 with throw-away kernels: loads take 0.7–1.0 µs, the first data comes
    // after 1.5–2 µs, 16 KB in flight in a unit lose a fifth of the bandwidth and 32–40 KB nothing;
    // beside their start and end rings reach 0.955 of the bandwidth forward and all of it backward
    // (36864 to 103008 columns). L2: 5.5–5.7 TB/s are reported for H100. 128 lanes (64 of sm_80)
    // at 1.7 (1.4) GHz.
    GpuCosts hopper = {.load_latency = 0.9e-6,
                       .reduction = 0.3e-6,
                       .block_start = 0.4e-6,
                       .exchange = 0.78e-6,
                       .own_exchange = 0.67e-6,
                       .first_data = 1.7e-6,
                       .cached_rate = 5.5e12,
                       .l2_rate = 5.5e12,
                       .lane_rate = 128 * 1.7e9,
                       .in_flight = 36 * 1024,
                       .ring_forward = 0.88,
                       .ring_backward = 1,
                       .row_loss = 0.33,
                       .l1_bytes = 128 * 1024};
    if (device.bulk_copies) return hopper;
    GpuCosts ampere = hopper;
    ampere.cached_rate = ampere.l2_rate = 4e12;
    ampere.lane_rate = 64 * 1.4e9;
    return ampere;
  }
  // Nobody here could measure. A paper model for CDNA: reductions 0.6 µs, loads 0.9, fill 3 µs;
  // Infinity Cache 10 TB/s of 17 at most on MI300X, on others 2.5 times the copy rate; L2 20 TB/s
  // (64 bytes a cycle and unit would be 40). Long rows loaded as a whole lose less than on an H200,
  // whose units take turns at one L2; how much less, is a guess. 64 lanes (RDNA3: 128 a pair of
  // units) at 2.1 GHz, a third of the operations packed.
  GpuCosts cdna = {.load_latency = 0.9e-6,
                   .reduction = 0.6e-6,
                   .block_start = 0.8e-6,
                   .exchange = 1.2e-6,
                   .own_exchange = 0.6e-6,
                   .first_data = 3e-6,
                   .cached_rate = 10e12,
                   .l2_rate = 20e12,
                   .lane_rate = 64 * 2.1e9 * 1.3,
                   .in_flight = 28 * 1024,
                   .ring_forward = 1,
                   .ring_backward = 1,
                   .row_loss = 0.2,
                   .l1_bytes = 16 * 1024};
  if (device.arch != "gfx942" && device.arch != "gfx950") {
    cdna.cached_rate = 2.5 * (device.bandwidth > 0 ? device.bandwidth : 1e12);
    cdna.l2_rate = 64 * 2.1e9 * 0.5 * std::max(1, device.compute_units);
  }
  if (limits.wave == 32) cdna.lane_rate *= 2;
  return cdna;
}

}  // namespace hipnorm
