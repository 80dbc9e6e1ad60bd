// A launch from its checks to its end.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {
namespace {

std::mutex one_launch;  // the machine is one
Fault last;
Statistics counted;

constexpr int kMostThreads = 1024;
constexpr int kMostCluster = 16;
constexpr std::size_t kLdsAlignment = 128;

struct Unwinding {};  // a fiber after a fault, through its kernel, which has no say in it

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

const Fault& last_fault() { return last; }
Statistics statistics() { return counted; }

// What every fiber runs, launch after launch.
void run_threads() {
  for (;;) {
    try {
      machine.call.run(machine.call);
      machine.exit_thread();
    } catch (const Unwinding&) {
    }
    // Outside the handler: what is being caught is known of the processor's thread, not of a fiber.
    if (!machine.message.empty()) machine.switch_to(&machine.host);
  }
}

// Why the launch cannot be; empty when it can.
std::string Machine::refusal() const {
  const auto number = [](auto n) { return std::to_string(n); };
  if (grid.blocks < 1 || grid.blocks > 2147483647) {
    return number(grid.blocks) + " blocks; 1 to 2147483647 were expected";
  }
  if (grid.threads < 1 || grid.threads > kMostThreads) {
    return number(grid.threads) + " threads a block; 1 to 1024 were expected";
  }
  if (grid.lds_bytes > schedule.lds_bytes) {
    return number(grid.lds_bytes) + " bytes of LDS; up to " + number(schedule.lds_bytes) +
           " were expected";
  }
  if (grid.cluster < 1 || grid.cluster > kMostCluster) {
    return "clusters of " + number(grid.cluster) + " blocks; 1 to 16 were expected";
  }
  if (grid.blocks % grid.cluster != 0) {
    return number(grid.blocks) + " blocks in clusters of " + number(grid.cluster) +
           ": not a multiple";
  }
  return "";
}

// Room for what is resident at once: one cluster, or with a cooperative launch all.
void Machine::arrange() {
  const std::size_t threads = static_cast<std::size_t>(grid.threads);
  const std::size_t cluster_count =
      grid.cooperative ? static_cast<std::size_t>(grid.blocks / grid.cluster) : 1;
  const std::size_t block_count = cluster_count * static_cast<std::size_t>(grid.cluster);
  const std::size_t lanes = static_cast<std::size_t>(wave_size);
  const std::size_t waves_of_block = (threads + lanes - 1) / lanes;
  const std::size_t lds_stride = round_up(grid.lds_bytes, kLdsAlignment);

  stacks.provide(block_count * threads, run_threads);
  fibers.assign(block_count * threads, {});
  waves.assign(block_count * waves_of_block, {});
  blocks.assign(block_count, {});
  clusters.assign(cluster_count, {});
  lds.resize(block_count * lds_stride + kLdsAlignment);
  unsigned char* lds_start = lds.data();
  while (reinterpret_cast<std::uintptr_t>(lds_start) % kLdsAlignment != 0) ++lds_start;

  for (std::size_t b = 0; b < block_count; ++b) {
    Block& block = blocks[b];
    block.waves = &waves[b * waves_of_block];
    block.wave_count = static_cast<int>(waves_of_block);
    block.threads = grid.threads;
    block.cluster = &clusters[b / static_cast<std::size_t>(grid.cluster)];
    block.context.block_dim.x = static_cast<unsigned>(grid.threads);
    block.context.grid_dim.x = static_cast<unsigned>(grid.blocks);
    block.context.lds = lds_start + b * lds_stride;
    block.context.lds_bytes = static_cast<std::ptrdiff_t>(grid.lds_bytes);
    block.context.rank = static_cast<int>(b % static_cast<std::size_t>(grid.cluster));
    block.in_flight.resize(grid.lds_bytes / 4 + 1);
    if (schedule.detect_races && b == races.size()) races.emplace_back();
    block.races = schedule.detect_races ? &races[b] : nullptr;
    for (std::size_t t = 0; t < threads; ++t) {
      Fiber& fiber = fibers[b * threads + t];
      fiber.thread.thread_idx.x = static_cast<unsigned>(t);
      fiber.thread.block = &block.context;
      fiber.strand = &stacks[b * threads + t];
      fiber.wave = &block.waves[t / lanes];
      fiber.lane = static_cast<int>(t % lanes);
    }
    for (std::size_t w = 0; w < waves_of_block; ++w) {
      block.waves[w].block = &block;
      block.waves[w].lanes = &fibers[b * threads + w * lanes];
      block.waves[w].index = static_cast<std::uint32_t>(b * waves_of_block + w);
    }
  }
  for (std::size_t c = 0; c < cluster_count; ++c) {
    clusters[c].blocks = &blocks[c * static_cast<std::size_t>(grid.cluster)];
    clusters[c].size = grid.cluster;
    clusters[c].threads = grid.cluster * grid.threads;
  }
}

void Machine::start_cluster(Cluster& cluster, std::int64_t index) {
  cluster.arrived = cluster.absent = cluster.exited = 0;
  cluster.epoch = 0;
  for (int b = 0; b < cluster.size; ++b) {
    Block& block = cluster.blocks[b];
    block.index = index * cluster.size + b;
    block.context.block_idx.x = static_cast<unsigned>(block.index);
    block.context.watches_lds = schedule.preempt_on_lds || block.races != nullptr;
    if (block.races != nullptr) {
      block.races->start(block.wave_count, wave_size, block.context.lds_bytes);
    }
    std::memset(block.context.lds, 0xff, grid.lds_bytes);
    block.live = block.threads;
    block.exited = block.arrived = block.in_flight_count = 0;
    block.epoch = 0;
    block.barriers.clear();
    live += block.threads;
    for (int w = 0; w < block.wave_count; ++w) {
      Wave& wave = block.waves[w];
      const int lanes = std::min(wave_size, block.threads - w * wave_size);
      wave.live = ~std::uint64_t{0} >> (64 - lanes);
      make_ready(wave, wave.live);
      for (int lane = 0; lane < lanes; ++lane) {
        wave.lanes[lane].at = At::nothing;
        wave.lanes[lane].arrived_at_cluster = false;
        wave.lanes[lane].loads = 0;
      }
    }
  }
}

hipError_t Machine::launch(const Call& new_call, const gpu::Grid& new_grid, int wave) {
  call = new_call;
  grid = new_grid;
  wave_size = wave;
  message = refusal();
  if (!message.empty()) {
    message = name_of_kernel(call) + ": " + message;
    return hipErrorInvalidConfiguration;
  }
  const std::int64_t resident = (grid.cooperative ? grid.blocks : grid.cluster) * grid.threads;
  if (resident > static_cast<std::int64_t>(Stacks::kMost)) {
    message = name_of_kernel(call) + ": " + std::to_string(resident) +
              " threads resident at once; the emulator has stacks for " +
              std::to_string(Stacks::kMost);
    return hipErrorCooperativeLaunchTooLarge;
  }
  random = Random(schedule.seed);
  constexpr std::uint32_t kLandingOdds[] = {0, 4, 128};  // as late as possible, some time, soon
  landing_odds = kLandingOdds[random.below(3)];
  live = next_draw = spins = switches = 0;
  ready_waves.clear();
  idle.clear();
  flights.clear();
  accesses.clear();
  bytes_before.clear();
  arrange();

  Strand here;
  host.strand = &here;
  running = &host;
  std::vector<std::int64_t> order(static_cast<std::size_t>(grid.blocks / grid.cluster));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  }
  for (std::size_t i = 0; i < order.size() && message.empty();) {
    for (Cluster& cluster : clusters) start_cluster(cluster, order[i++]);
    switch_to(pick());
  }
  running = nullptr;
  current = nullptr;
  host.strand = nullptr;
  if (message.empty()) return hipSuccess;
  stacks.drop_all();
  return hipErrorLaunchFailure;
}

void Machine::fault(const Fiber& thread, Site site, const std::string& what) {
  message = name_of_kernel(call) + ", block " + std::to_string(block_of(thread).index) +
            ", thread " + std::to_string(index_of(thread)) + at_site(site) + ": " + what;
  throw Unwinding{};
}

hipError_t launch(const Call& call, const gpu::Grid& grid, int wave) {
  const std::lock_guard lock(one_launch);
  const hipError_t error = machine.launch(call, grid, wave);
  last = {error, machine.message};
  counted = {machine.switches};
  return error;
}

}  // namespace hipnorm::emulator
