// Asynchronous copies: what is in flight, and the barriers that count it.
#include "tests/emulator/async.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {
namespace {

// What the bytes of an initialised AsyncBarrier hold: this, and its index among the block's.
constexpr std::uint64_t kHandle = 0xba881e5ba8810000;
constexpr std::uint32_t kMostArrivals = (1 << 20) - 1;  // PTX ISA, mbarrier: count and tx-count
constexpr std::int64_t kMostBytes = (1 << 20) - 1;

std::string number(std::int64_t n) { return std::to_string(n); }

std::string name_of_barrier(const Block& block, std::ptrdiff_t offset) {
  return "the AsyncBarrier at LDS byte " + number(offset) + " of block " + number(block.index);
}

void check_place(const Fiber& user, const Block& block, std::ptrdiff_t offset, Site site) {
  if (offset < 0 || offset > block.context.lds_bytes - 8 || offset % 8 != 0) {
    machine.fault(user, site,
                  name_of_barrier(block, offset) + " is misaligned or outside the block's " +
                      number(block.context.lds_bytes) + " bytes of LDS");
  }
}

// The barrier there; a fault if there is none that `user` may use.
int barrier_at(const Fiber& user, const Block& block, std::ptrdiff_t offset, Site site) {
  check_place(user, block, offset, site);
  std::uint64_t state;
  std::memcpy(&state, block.context.lds + offset, sizeof state);
  const std::uint64_t index = state ^ kHandle;
  if (index >= block.barriers.size() || block.barriers[index].offset != offset) {
    machine.fault(
        user, site,
        name_of_barrier(block, offset) + " is uninitialised, or its bytes were overwritten");
  }
  const BarrierRecord& barrier = block.barriers[index];
  const Fiber& initialiser = *barrier.initialiser;
  if (&user == &initialiser) return static_cast<int>(index);
  if (!barrier.fenced) {
    machine.fault(user, site,
                  name_of_barrier(block, offset) + " is used without a barrier_init_fence by " +
                      "thread " + number(index_of(initialiser)) + ", which initialised it");
  }
  const bool cluster_met = block.cluster->epoch != barrier.cluster_epoch;
  const bool block_met = &block_of(user) == &block && block.epoch != barrier.block_epoch;
  if (!cluster_met && !block_met && user.wave != initialiser.wave) {
    machine.fault(user, site,
                  name_of_barrier(block, offset) + " is used without a barrier of the " +
                      (&block_of(user) == &block ? "block" : "cluster") +
                      " since its initialisation");
  }
  return static_cast<int>(index);
}

// Ends the phase if nothing is missing.
void advance(const Fiber& thread, Block& block, BarrierRecord& barrier, Site site) {
  if (barrier.pending > 0) return;
  if (barrier.bytes < 0) {
    machine.fault(thread, site,
                  number(-barrier.bytes) + " bytes completed on " +
                      name_of_barrier(block, barrier.offset) +
                      " that nobody expected by the end of its phase " +
                      number(static_cast<std::int64_t>(barrier.phase)));
  }
  if (barrier.bytes > 0) return;
  ++barrier.phase;
  if (block.races != nullptr) {
    block.races->phase_ended(static_cast<int>(&barrier - block.barriers.data()));
  }
  barrier.pending = barrier.arrivals;
  for (Fiber* fiber : barrier.waiting) machine.make_ready(*fiber);
  barrier.waiting.clear();
}

void begin(Site) {
  machine.note_progress();
  machine.preempt();
}

void take_off(Block& block, Flight flight) {
  const auto word = block.in_flight.begin() + flight.target / 4;
  const auto end = word + flight.bytes / 4;
  if (std::find(word, end, 1) != end) {
    machine.fault(*flight.issuer, flight.site,
                  "an asynchronous copy or post to LDS bytes " + number(flight.target) + "–" +
                      number(flight.target + flight.bytes - 1) + " of block " +
                      number(block.index) + ", to which another one is in flight");
  }
  std::fill(word, end, 1);
  std::memset(block.context.lds + flight.target, 0xff, flight.bytes);
  ++block.in_flight_count;
  block.context.watches_lds = true;
  machine.flights.push_back(std::move(flight));
}

}  // namespace

void barrier_init(std::ptrdiff_t offset, unsigned arrivals, Site site) {
  begin(site);
  Fiber& self = *machine.running;
  Block& block = block_of(self);
  check_place(self, block, offset, site);
  if (arrivals == 0 || arrivals > kMostArrivals) {
    machine.fault(self, site,
                  "barrier_init with " + number(arrivals) + " arrivals; 1 to " +
                      number(kMostArrivals) + " were expected");
  }
  for (const BarrierRecord& other : block.barriers) {
    if (other.offset == offset) {
      machine.fault(self, site, name_of_barrier(block, offset) + " is initialised twice");
    }
  }
  const std::uint64_t state = kHandle | block.barriers.size();
  on_lds_access(offset, sizeof state, site);
  std::memcpy(block.context.lds + offset, &state, sizeof state);
  block.barriers.push_back({.offset = offset,
                            .arrivals = arrivals,
                            .pending = arrivals,
                            .waiting = {},
                            .initialiser = &self,
                            .block_epoch = block.epoch,
                            .cluster_epoch = block.cluster->epoch});
}

void barrier_init_fence(Site site) {
  fence_async(site);  // on the device it is one, too
  for (BarrierRecord& barrier : block_of(*machine.running).barriers) {
    if (barrier.initialiser == machine.running) barrier.fenced = true;
  }
}

void barrier_arrive(std::ptrdiff_t offset, unsigned bytes, Site site) {
  begin(site);
  Fiber& self = *machine.running;
  Block& block = block_of(self);
  const int index = barrier_at(self, block, offset, site);
  BarrierRecord& barrier = block.barriers[index];
  if (barrier.pending == 0) {
    machine.fault(self, site,
                  "more arrivals than the count " + number(barrier.arrivals) + " of " +
                      name_of_barrier(block, offset) + " in its phase " + number(barrier.phase));
  }
  barrier.bytes += bytes;
  if (barrier.bytes > kMostBytes) {
    machine.fault(self, site,
                  number(barrier.bytes) + " bytes expected on " + name_of_barrier(block, offset) +
                      "; it counts up to " + number(kMostBytes));
  }
  --barrier.pending;
  if (block.races != nullptr) block.races->arrived(wave_of(self), self.lane, index);
  advance(self, block, barrier, site);
}

void barrier_wait(std::ptrdiff_t offset, unsigned parity, Site site) {
  begin(site);
  Fiber& self = *machine.running;
  Block& block = block_of(self);
  if (parity > 1) {
    machine.fault(self, site, "barrier_wait for parity " + number(parity) + "; it is 0 or 1");
  }
  const int index = barrier_at(self, block, offset, site);
  // Looked at anew when the thread runs: as in hardware, a phase that ended while the thread was
  // slow may have been followed by another of the same parity as before.
  while ((block.barriers[index].phase & 1) == parity) {
    self.barrier = index;
    self.parity = parity;
    block.barriers[index].waiting.push_back(&self);
    machine.wait(At::barrier_wait, site);
  }
  if (block.races != nullptr) block.races->waited(wave_of(self), self.lane, index);
}

void copy_to_lds(std::ptrdiff_t target, const void* source, unsigned bytes, std::ptrdiff_t barrier,
                 Site site) {
  begin(site);
  Fiber& self = *machine.running;
  Block& block = block_of(self);
  if (target % 16 != 0 || reinterpret_cast<std::uintptr_t>(source) % 16 != 0 || bytes % 16 != 0 ||
      bytes == 0) {
    machine.fault(self, site,
                  "misaligned copy_to_lds: target " + number(target) + ", source " +
                      number(reinterpret_cast<std::uintptr_t>(source) % 16) +
                      " after a multiple of 16, bytes " + number(bytes) +
                      "; multiples of 16 were expected");
  }
  if (target < 0 || target > block.context.lds_bytes - std::ptrdiff_t{bytes}) {
    machine.fault(self, site,
                  "copy_to_lds to bytes " + number(target) + "–" + number(target + bytes - 1) +
                      ", outside the block's " + number(block.context.lds_bytes) + " bytes of LDS");
  }
  barrier_at(self, block, barrier, site);
  machine.check_overwrite(self, target, bytes, site, true);
  Flight flight{.issuer = &self,
                .site = site,
                .block = &block,
                .target = target,
                .barrier = barrier,
                .bytes = bytes,
                .source = source,
                .data = {}};
  if (machine.random.next() % 2 == 0) {  // read at issue, or else when it lands
    const auto* first = static_cast<const unsigned char*>(source);
    flight.data.assign(first, first + bytes);
    flight.source = nullptr;
  }
  take_off(block, std::move(flight));
}

void check_rank(int rank, Site site) {
  const int size = block_of(*machine.running).cluster->size;
  if (rank < 0 || rank >= size) {
    machine.fault(*machine.running, site,
                  "remote() to rank " + number(rank) + " of a cluster of " + number(size));
  }
}

void post(RemotePlace slot, const void* value, unsigned bytes, RemotePlace barrier, Site site) {
  begin(site);
  Fiber& self = *machine.running;
  check_rank(slot.rank, site);
  Block& block = block_of(self).cluster->blocks[slot.rank];
  if (slot.rank != barrier.rank) {
    machine.fault(self, site,
                  "post to block rank " + number(slot.rank) + " completing on a barrier of rank " +
                      number(barrier.rank) + "; both must lie in one block");
  }
  if (slot.offset % bytes != 0 || slot.offset < 0 ||
      slot.offset > block.context.lds_bytes - std::ptrdiff_t{bytes}) {
    machine.fault(self, site,
                  "post of " + number(bytes) + " bytes to LDS byte " + number(slot.offset) +
                      ": misaligned or outside the block's " + number(block.context.lds_bytes) +
                      " bytes");
  }
  if (block.live == 0) {
    machine.fault(
        self, site,
        "unmatched asynchronous copy: post to block " + number(block.index) + ", which has exited");
  }
  barrier_at(self, block, barrier.offset, site);
  // What orders a post to another block after the reads there is not known here.
  if (&block == &block_of(self)) machine.check_overwrite(self, slot.offset, bytes, site, false);
  const auto* first = static_cast<const unsigned char*>(value);
  take_off(block, {.issuer = &self,
                   .site = site,
                   .block = &block,
                   .target = slot.offset,
                   .barrier = barrier.offset,
                   .bytes = bytes,
                   .source = nullptr,
                   .data = {first, first + bytes}});
}

void fence_async(Site site) {
  begin(site);
  const Fiber& self = *machine.running;
  if (Races* races = block_of(self).races) races->fenced(wave_of(self), self.lane);
}

void Machine::land(std::size_t i) {
  std::swap(flights[i], flights.back());
  const Flight flight = std::move(flights.back());
  flights.pop_back();
  Block& block = *flight.block;
  std::memcpy(block.context.lds + flight.target,
              flight.source != nullptr ? flight.source : flight.data.data(), flight.bytes);
  const auto word = block.in_flight.begin() + flight.target / 4;
  std::fill(word, word + flight.bytes / 4, 0);
  --block.in_flight_count;
  block.context.watches_lds =
      block.in_flight_count > 0 || schedule.preempt_on_lds || block.races != nullptr;
  const int index = barrier_at(*flight.issuer, block, flight.barrier, flight.site);
  if (block.races != nullptr) block.races->landed(flight.target, flight.bytes, index);
  BarrierRecord& barrier = block.barriers[index];
  barrier.bytes -= flight.bytes;
  spins = 0;
  advance(*flight.issuer, block, barrier, flight.site);
}

void Machine::report_unmatched(const Block& block) {
  const auto flight = std::find_if(flights.begin(), flights.end(),
                                   [&](const Flight& f) { return f.block == &block; });
  fault(*flight->issuer, flight->site,
        "unmatched asynchronous copy: " + number(flight->bytes) + " bytes to LDS byte " +
            number(flight->target) + " of block " + number(block.index) +
            " were in flight when that block ended");
}

}  // namespace hipnorm::emulator
