// The cost model: predicted time of a config, and the default that follows from it.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

struct Cost {
  double bytes = 0;    // moved to and from memory
  double seconds = 0;  // bytes ÷ bandwidth, launches, imbalance between compute units
};

// `config` must be valid for the problem.
Cost predict(const Config& config, const Problem& problem, const Device& device);

// Whether the rows that a CPU's backward config forms together, the next ones, which are fetched
// meanwhile, and what lies beside them stay in the caches of one core.
bool block_stays_in_cache(const Config& config, const Problem& problem, const Device& device);

// Every config worth a try, valid ones only, cheapest prediction first (ties in the list's order);
// behind all others, in the same order, those of variants that run on request only.
std::vector<Config> candidates(const Problem& problem, const Device& device);

// The candidate with the lowest predicted time: the first of candidates(), without making the list.
// Never one that runs on request only.
// Total: there is one for every problem with rows, cols ≥ 0 and rows × cols ≤ 2^58 on every device
// that has kernels. Throws std::invalid_argument where no variant serves the op on this device.
Config default_config(const Problem& problem, const Device& device);

// The config that runs where any does, however slow: one task, narrow vectors; on a GPU no
// persistent groups, whose number is the runtime's to say.
Config plainest_config(const Problem& problem, const Device& device);

}  // namespace hipnorm
