// Where threads meet: operations of a wave, __syncthreads, the barrier of a cluster, a thread's
// end.
#include <bit>
#include <string>
#include <string_view>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

bool same_place(Site a, Site b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

int first_lane(std::uint64_t lanes) { return std::countr_zero(lanes); }

}  // namespace

// The running thread's wave executes one operation together. Returns which of the two sets of
// values holds what the lanes handed in.
std::uint64_t Machine::wave_operation(At at, std::uint64_t bits, std::size_t size, int width,
                                      Site site) {
  note_progress();
  Fiber& self = *running;
  Wave& wave = *self.wave;
  if (wave.at_syncthreads != 0) {
    const Fiber& other = wave.lanes[first_lane(wave.at_syncthreads)];
    fault(self, site,
          std::string(name_of(at)) + " while thread " + number(index_of(other)) +
              " of its wave waits at __syncthreads" + at_site(other.site) +
              ": an inactive lane, divergent wave");
  }
  if (wave.arrived == 0) {
    wave.operation = at;
    wave.width = width;
    wave.size = size;
    wave.site = site;
  } else if (wave.operation != at || wave.width != width || wave.size != size ||
             !same_place(wave.site, site)) {
    const Fiber& other = wave.lanes[first_lane(wave.arrived)];
    fault(self, site,
          std::string(name_of(at)) + " while thread " + number(index_of(other)) +
              " of its wave waits at another operation, " + name_of(wave.operation) +
              at_site(wave.site) + ": an inactive lane, divergent wave");
  }
  const std::uint64_t set = wave.generation & 1;
  wave.values[set][self.lane] = bits;
  wave.arrived |= std::uint64_t{1} << self.lane;
  if (wave.arrived == wave.live) complete_wave_operation(wave);
  wait(at, site);
  return set;
}

void Machine::complete_wave_operation(Wave& wave) {
  wave.participants[wave.generation & 1] = wave.arrived;
  ++wave.generation;
  if (wave.block->races != nullptr) wave.block->races->wave_met(wave_of(wave.lanes[0]));
  make_ready(wave, wave.arrived);
  wave.arrived = 0;
}

std::uint64_t shuffle(Shuffle kind, std::uint64_t bits, std::size_t size, int argument, int width,
                      Site site) {
  const Fiber& self = *machine.running;
  const int wave_size = machine.wave_size;
  const At at = kind == Shuffle::lane ? At::shuffle : At::shuffle_xor;
  if (width <= 0 || width > wave_size || (width & (width - 1)) != 0) {
    machine.fault(self, site,
                  std::string(name_of(at)) + " of width " + number(width) +
                      "; a power of two up to the wave size " + number(wave_size) +
                      " was expected");
  }
  const int group = self.lane & ~(width - 1);
  int source = group | (argument & (width - 1));
  if (kind == Shuffle::exclusive_or) {
    if (argument < 0) {
      machine.fault(self, site, "__shfl_xor with the negative mask " + number(argument));
    }
    source = self.lane ^ argument;
    if (source >= group + width) source = self.lane;  // beyond its group: the lane's own value
  }
  const std::uint64_t set = machine.wave_operation(at, bits, size, width, site);
  const Wave& wave = *self.wave;
  if ((wave.participants[set] >> source & 1) == 0) {
    const bool exists = self.thread.thread_idx.x - static_cast<unsigned>(self.lane) +
                            static_cast<unsigned>(source) <
                        self.thread.block->block_dim.x;
    machine.fault(self, site,
                  std::string(name_of(at)) + " reads from the inactive lane " + number(source) +
                      (exists ? ", which has exited" : ", which the block does not have"));
  }
  return wave.values[set][source];
}

void sync_wave(Site site) { machine.wave_operation(At::wave_sync, 0, 0, 0, site); }
void sync_threads(Site site) { machine.sync_threads(site); }

void Machine::sync_threads(Site site) {
  note_progress();
  Fiber& self = *running;
  Wave& wave = *self.wave;
  Block& block = *wave.block;
  if (block.exited > 0) {
    fault(self, site,
          "divergent barrier: __syncthreads after " + number(block.exited) +
              " threads of the block have exited");
  }
  if (wave.arrived != 0) {
    const Fiber& other = wave.lanes[first_lane(wave.arrived)];
    fault(self, site,
          "divergent barrier: __syncthreads while thread " + number(index_of(other)) +
              " of its wave waits at " + name_of(wave.operation) + at_site(wave.site) +
              ", for which this is an inactive lane");
  }
  wave.at_syncthreads |= std::uint64_t{1} << self.lane;
  if (++block.arrived == block.live) {
    block.arrived = 0;
    ++block.epoch;
    if (block.races != nullptr) block.races->block_met();
    for (int i = 0; i < block.wave_count; ++i) {
      make_ready(block.waves[i], block.waves[i].at_syncthreads);
      block.waves[i].at_syncthreads = 0;
    }
  }
  wait(At::syncthreads, site);
}

void Machine::cluster_arrive(Site site) {
  note_progress();
  Fiber& self = *running;
  Cluster& cluster = *block_of(self).cluster;
  if (self.arrived_at_cluster) {
    fault(self, site, "cluster_arrive twice without a cluster_wait between");
  }
  if (cluster.absent > 0) {
    fault(self, site,
          "divergent cluster barrier: cluster_arrive after " + number(cluster.absent) +
              " threads of the cluster have exited without it");
  }
  preempt();
  self.arrived_at_cluster = true;
  self.cluster_epoch = cluster.epoch;
  if (++cluster.arrived < cluster.threads) return;
  cluster.arrived = 0;
  cluster.absent = cluster.exited;
  ++cluster.epoch;
  for (int b = 0; b < cluster.size; ++b) {
    for (int i = 0; i < cluster.blocks[b].wave_count; ++i) {
      Wave& wave = cluster.blocks[b].waves[i];
      make_ready(wave, wave.at_cluster);
      wave.at_cluster = 0;
    }
  }
}

void Machine::cluster_wait(Site site) {
  note_progress();
  Fiber& self = *running;
  const Cluster& cluster = *block_of(self).cluster;
  if (!self.arrived_at_cluster) fault(self, site, "cluster_wait without a cluster_arrive before");
  preempt();
  if (cluster.epoch == self.cluster_epoch) {
    self.wave->at_cluster |= std::uint64_t{1} << self.lane;
    wait(At::cluster_wait, site);
  }
  self.arrived_at_cluster = false;
}

void cluster_arrive(Site site) { machine.cluster_arrive(site); }
void cluster_wait(Site site) { machine.cluster_wait(site); }

void Machine::exit_thread() {
  note_progress();
  Fiber& self = *running;
  Wave& wave = *self.wave;
  Block& block = *wave.block;
  Cluster& cluster = *block.cluster;
  self.at = At::exited;
  wave.live &= ~(std::uint64_t{1} << self.lane);
  --live;
  --block.live;
  ++block.exited;
  ++cluster.exited;
  if (block.arrived > 0) {
    fault(self, {},
          "divergent barrier: it has exited while " + number(block.arrived) +
              " threads of the block wait at __syncthreads");
  }
  if (wave.arrived != 0 && wave.arrived == wave.live) complete_wave_operation(wave);
  if (!self.arrived_at_cluster || self.cluster_epoch != cluster.epoch) {
    ++cluster.absent;
    if (cluster.arrived > 0) {
      fault(self, {},
            "divergent cluster barrier: it has exited while " + number(cluster.arrived) +
                " threads of the cluster have arrived at it");
    }
  }
  if (block.live == 0 && block.in_flight_count > 0) report_unmatched(block);
  switch_to(pick());
}

}  // namespace hipnorm::emulator
