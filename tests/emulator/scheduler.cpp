// Who runs next.
#include <bit>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {

Machine machine;
ThreadContext* current = nullptr;

namespace {

constexpr std::int64_t kSpinsOfOne = 65536;  // polls of one thread that end in a deadlock

int any_bit(std::uint64_t bits, Random& random) {
  const int shift = static_cast<int>(random.next() % 64);
  return (std::countr_zero(std::rotr(bits, shift)) + shift) % 64;
}

}  // namespace

void Machine::make_ready(Wave& wave, std::uint64_t lanes) {
  if (lanes == 0) return;
  if (wave.ready == 0) {
    wave.ready_position = static_cast<std::uint32_t>(ready_waves.size());
    ready_waves.push_back(wave.index);
  }
  wave.ready |= lanes;
}

Fiber* Machine::take(Wave& wave, int lane) {
  wave.ready &= ~(std::uint64_t{1} << lane);
  if (wave.ready == 0) {
    ready_waves[wave.ready_position] = ready_waves.back();
    waves[ready_waves.back()].ready_position = wave.ready_position;
    ready_waves.pop_back();
  }
  return &wave.lanes[lane];
}

// Some wave that has a ready lane, as the policy wants it.
Wave& Machine::choose_wave() {
  const auto count = static_cast<std::uint32_t>(ready_waves.size());
  switch (schedule.policy) {
    case Policy::run_ahead:
    case Policy::hold_back: {
      if (--next_draw < 0) {
        // Long enough for a wave to run through several stages of a pipeline.
        next_draw = 1 + random.below(static_cast<std::uint32_t>(fibers.size()) * 16);
        favourite = random.below(static_cast<std::uint32_t>(waves.size()));
      }
      Wave& wave = waves[favourite];
      if (schedule.policy == Policy::run_ahead) {
        if (wave.ready != 0) return wave;
        break;
      }
      Wave& other = waves[ready_waves[random.below(count)]];
      if (&other != &wave || count == 1) return other;
      // The last in the list, or the one before it if that is the favourite.
      const std::uint32_t last = ready_waves[count - 1];
      return waves[last != favourite ? last : ready_waves[count - 2]];
    }
    case Policy::first_wave_first:
    case Policy::last_wave_first: {
      const bool first = schedule.policy == Policy::first_wave_first;
      std::uint32_t best = ready_waves[0];
      for (const std::uint32_t i : ready_waves) {
        if (first ? i < best : i > best) best = i;
      }
      return waves[best];
    }
    case Policy::random: break;
  }
  return waves[ready_waves[random.below(count)]];
}

// The next thread to run, no longer ready; the host when all have exited.
Fiber* Machine::pick() {
  ++switches;
  if (!flights.empty() && random.next() % 256 < landing_odds) {
    land(random.below(static_cast<std::uint32_t>(flights.size())));
  }
  for (;;) {
    // Threads that poll a flag: when nobody else can run, and now and then.
    if (!idle.empty() && (ready_waves.empty() || random.next() % 16 == 0)) {
      if (ready_waves.empty() && !flights.empty() && random.next() % 4 == 0) {
        land(random.below(static_cast<std::uint32_t>(flights.size())));
        continue;
      }
      if (ready_waves.empty() && ++spins > kSpinsOfOne * static_cast<std::int64_t>(idle.size())) {
        report_deadlock();
      }
      std::swap(idle[random.below(static_cast<std::uint32_t>(idle.size()))], idle.back());
      Fiber* fiber = idle.back();
      idle.pop_back();
      return fiber;
    }
    if (!ready_waves.empty()) break;
    if (live == 0) return &host;
    if (flights.empty()) report_deadlock();
    land(random.below(static_cast<std::uint32_t>(flights.size())));
  }
  Wave& wave = choose_wave();
  switch (schedule.policy) {
    case Policy::first_wave_first: return take(wave, std::countr_zero(wave.ready));
    case Policy::last_wave_first: return take(wave, 63 - std::countl_zero(wave.ready));
    default: return take(wave, any_bit(wave.ready, random));
  }
}

void Machine::switch_to(Fiber* next) {
  Fiber* self = running;
  if (next == self) return;
  running = next;
  current = &next->thread;
  switch_strand(*self->strand, *next->strand);
}

void Machine::preempt() {
  make_ready(*running);
  switch_to(pick());
}

void Machine::wait(At at, Site site) {
  running->at = at;
  running->site = site;
  switch_to(pick());
  running->at = At::nothing;
}

std::uint64_t Machine::agent_load(const std::uint64_t* flag, Site site) {
  if (!accesses.empty()) check_accesses();
  Fiber& self = *running;
  constexpr int kPatience = 64;  // flags that one thread polls in turn before others must run
  const bool same = self.loads > 0 && self.loaded_from == flag && self.loaded == *flag;
  if (same || self.loads > kPatience) {
    if (same) spins += 63;  // the same value of the same flag again: surely a loop
    idle.push_back(&self);
    wait(At::agent_load, site);
  } else {
    preempt();
  }
  const std::uint64_t value = *static_cast<const volatile std::uint64_t*>(flag);
  self.loads = same && value == self.loaded ? 1 : self.loads + 1;
  self.loaded_from = flag;
  self.loaded = value;
  return value;
}

}  // namespace hipnorm::emulator

namespace hipnorm::gpu {

std::uint64_t agent_load(const std::uint64_t* flag, emulator::Site site) {
  return emulator::machine.agent_load(flag, site);
}
void agent_store(std::uint64_t* flag, std::uint64_t value, emulator::Site) {
  emulator::machine.note_progress();
  emulator::machine.preempt();
  *static_cast<volatile std::uint64_t*>(flag) = value;
}

}  // namespace hipnorm::gpu
