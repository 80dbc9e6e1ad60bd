#include "tests/emulator/races.h"

#include <algorithm>
#include <bit>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {
namespace {

std::uint64_t bit(int lane) { return std::uint64_t{1} << lane; }

// Counters beyond a vector's end are zero.
void raise(std::vector<std::uint32_t>& counters, std::size_t i, std::uint32_t to) {
  if (counters.size() <= i) counters.resize(i + 1);
  counters[i] = std::max(counters[i], to);
}
void raise(std::vector<std::uint32_t>& counters, const std::vector<std::uint32_t>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) raise(counters, i, to[i]);
}

}  // namespace

void Races::Stamp::join(const Stamp& other) {
  if (other.clock > clock) {
    *this = other;
  } else if (other.clock == clock) {
    for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = std::max(turns[i], other.turns[i]);
  }
}

void Races::View::join(const View& other) {
  if (waves.size() < other.waves.size()) waves.resize(other.waves.size());
  for (std::size_t i = 0; i < other.waves.size(); ++i) waves[i].join(other.waves[i]);
  raise(phases, other.phases);
}

void Races::start(int waves, int wave_size, std::ptrdiff_t lds_bytes) {
  wave_size_ = wave_size;
  ++serial_;
  const auto threads = static_cast<std::size_t>(waves * wave_size);
  waves_.assign(static_cast<std::size_t>(waves), {});
  acquired_.resize(threads);
  for (auto& acquired : acquired_) acquired.clear();
  turns_.assign(threads, 0);
  last_fence_.assign(threads, 0);
  fences_ = 0;
  barriers_.clear();
  phases_.clear();
  cells_.resize(static_cast<std::size_t>((lds_bytes + kCellBytes - 1) / kCellBytes));
  many_.clear();
  more_.clear();
}

// ---- Order -----------------------------------------------------------------------------------

void Races::wave_met(int wave) {
  Wave& w = waves_[static_cast<std::size_t>(wave)];
  ++w.clock;
  const View* last = nullptr;
  for (; w.apart != 0; w.apart &= w.apart - 1) {
    const std::size_t t = thread(wave, std::countr_zero(w.apart));
    turns_[t] = 0;
    for (const Acquired& a : acquired_[t]) {
      if (a.view.get() != last) w.view.join(*a.view);  // most lanes wait for the same
      last = a.view.get();
    }
    acquired_[t].clear();
  }
}

void Races::block_met() {
  for (int i = 0; i < static_cast<int>(waves_.size()); ++i) {
    wave_met(i);
    Wave& w = waves_[static_cast<std::size_t>(i)];
    w.met = w.clock;
    raise(phases_, w.view.phases);
    w.view.waves.clear();
    w.view.phases.clear();
  }
}

Races::Barrier& Races::barrier(int index) {
  const auto i = static_cast<std::size_t>(index);
  if (barriers_.size() <= i) barriers_.resize(i + 1);
  return barriers_[i];
}

void Races::arrived(int wave, int lane, int index) {
  Barrier& b = barrier(index);
  Wave& w = waves_[static_cast<std::size_t>(wave)];
  const std::size_t t = thread(wave, lane);
  if (b.arrivals.waves.size() < waves_.size()) b.arrivals.waves.resize(waves_.size());
  Stamp& own = b.arrivals.waves[static_cast<std::size_t>(wave)];
  if (own.clock < w.clock) own = {w.clock, {}};
  own.turns[static_cast<std::size_t>(lane)] = ++turns_[t];
  w.apart |= bit(lane);
  b.arrivals.join(w.view);
  for (const Acquired& a : acquired_[t]) {
    if (a.view.get() != b.joined) b.arrivals.join(*a.view);
    b.joined = a.view.get();
  }
}

void Races::phase_ended(int index) {
  Barrier& b = barrier(index);
  ++b.phases;
  raise(b.arrivals.phases, static_cast<std::size_t>(index), b.phases);
  if (b.ended != nullptr) b.arrivals.join(*b.ended);
  b.ended = std::make_shared<const View>(std::move(b.arrivals));
  b.arrivals = {};
  b.joined = nullptr;
}

void Races::waited(int wave, int lane, int index) {
  const auto& ended = barrier(index).ended;
  if (ended == nullptr) return;  // for the phase before the first one
  auto& acquired = acquired_[thread(wave, lane)];
  const auto old = std::find_if(acquired.begin(), acquired.end(),
                                [&](const Acquired& a) { return a.barrier == index; });
  if (old != acquired.end()) {
    old->view = ended;  // holds what was seen at earlier phases
  } else {
    acquired.push_back({index, ended});
  }
  waves_[static_cast<std::size_t>(wave)].apart |= bit(lane);
}

void Races::fenced(int wave, int lane) { last_fence_[thread(wave, lane)] = ++fences_; }

bool Races::has_seen_since(const Access& by, const Stamped& other) const {
  const Wave& own = waves_[static_cast<std::size_t>(by.wave)];
  const auto& acquired = acquired_[thread(by.wave, by.lane)];
  const auto somewhere = [&](auto covers) {
    return covers(own.view) || std::any_of(acquired.begin(), acquired.end(),
                                           [&](const Acquired& a) { return covers(*a.view); });
  };
  if (other.wave == kCopy) {
    const std::size_t b = other.turn;
    return (b < phases_.size() && phases_[b] > other.clock) || somewhere([&](const View& view) {
             return b < view.phases.size() && view.phases[b] > other.clock;
           });
  }
  const auto u = static_cast<std::size_t>(other.wave);
  std::uint64_t lanes = other.lanes;
  if (other.wave == by.wave) {
    lanes &= ~bit(by.lane);
    if (lanes == 0 || other.clock < own.clock) return true;
  }
  return somewhere([&](const View& view) {
    if (view.waves.size() <= u || other.clock > view.waves[u].clock) return false;
    if (other.clock < view.waves[u].clock) return true;
    for (std::uint64_t rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
      if (view.waves[u].turns[lane] <= other.turn) return false;
    }
    return true;
  });
}

// ---- Accesses --------------------------------------------------------------------------------

Races::Stamped Races::stamp(const Access& access) const {
  return {.wave = access.wave,
          .clock = waves_[static_cast<std::size_t>(access.wave)].clock,
          .turn = turns_[thread(access.wave, access.lane)],
          .fences = fences_,
          .lanes = bit(access.lane),
          .site = access.site};
}

Races::Cell& Races::fresh(std::ptrdiff_t index) {
  Cell& cell = cells_[static_cast<std::size_t>(index)];
  if (cell.serial != serial_) {
    cell = {};
    cell.serial = serial_;
  }
  return cell;
}

const Races::Stamped* Races::unseen_read(const Access& by, const Cell& cell) const {
  if (cell.many == kNone) return has_seen(by, cell.read) ? nullptr : &cell.read;
  const Stamped* many = &many_[static_cast<std::size_t>(cell.many) * waves_.size()];
  for (std::size_t wave = 0; wave < waves_.size(); ++wave) {
    if (!has_seen(by, many[wave])) return &many[wave];
  }
  for (const auto& [part, read] : more_) {
    if (!cell.more) break;
    if (part == cell.many && !has_seen(by, read)) return &read;
  }
  return nullptr;
}

void Races::forget_reads(Cell& cell) {
  cell.read.wave = kNone;
  if (cell.many == kNone) return;
  Stamped* many = &many_[static_cast<std::size_t>(cell.many) * waves_.size()];
  for (std::size_t wave = 0; wave < waves_.size(); ++wave) many[wave].wave = kNone;
  if (cell.more) std::erase_if(more_, [&](const auto& more) { return more.first == cell.many; });
  cell.more = false;
}

// Keeps the reads that no later read has seen: who has seen that one has seen them.
void Races::note_read(const Access& by, Cell& cell) {
  const Stamped now = stamp(by);
  const auto merge = [&](Stamped& old) {
    if (old.wave == now.wave && old.clock == now.clock && old.turn == now.turn) {
      old.lanes |= now.lanes;
    } else if (has_seen(by, old)) {
      old = now;
    } else {
      return false;
    }
    return true;
  };
  if (cell.many == kNone) {
    if (merge(cell.read)) return;
    cell.many = static_cast<int>(many_.size() / waves_.size());
    many_.resize(many_.size() + waves_.size());
    const auto first = many_.end() - static_cast<std::ptrdiff_t>(waves_.size());
    first[cell.read.wave] = cell.read;
  }
  Stamped& own = many_[static_cast<std::size_t>(cell.many) * waves_.size() +
                       static_cast<std::size_t>(by.wave)];
  if (merge(own)) return;
  for (auto& [part, read] : more_) {
    if (!cell.more) break;
    if (part == cell.many && read.wave == by.wave && merge(read)) return;
  }
  more_.emplace_back(cell.many, now);
  cell.more = true;
}

std::string Races::read(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes) {
  for (std::ptrdiff_t i = offset / kCellBytes; i * kCellBytes < offset + bytes; ++i) {
    Cell& cell = fresh(i);
    if (!has_seen(access, cell.written)) return sentence("reads", i, cell.written, "wrote");
    note_read(access, cell);
  }
  return "";
}

std::string Races::overwrite(const Access& access, std::ptrdiff_t offset,
                             std::ptrdiff_t bytes) const {
  for (std::ptrdiff_t i = offset / kCellBytes; i * kCellBytes < offset + bytes; ++i) {
    const Cell& cell = cells_[static_cast<std::size_t>(i)];
    if (cell.serial != serial_) continue;
    if (!has_seen(access, cell.written)) return sentence("writes", i, cell.written, "wrote");
    if (const Stamped* read = unseen_read(access, cell)) {
      return sentence("writes", i, *read, "read");
    }
  }
  return "";
}

std::string Races::unfenced(const Access& access, std::ptrdiff_t offset,
                            std::ptrdiff_t bytes) const {
  for (std::ptrdiff_t i = offset / kCellBytes; i * kCellBytes < offset + bytes; ++i) {
    const Cell& cell = cells_[static_cast<std::size_t>(i)];
    const Stamped& written = cell.written;
    if (cell.serial != serial_ || written.wave < 0) continue;
    const std::size_t writer = thread(written.wave, std::countr_zero(written.lanes));
    if (std::max(last_fence_[writer], last_fence_[thread(access.wave, access.lane)]) <=
        written.fences) {
      return "an asynchronous copy overwrites LDS byte " + std::to_string(i * kCellBytes) +
             ", which thread " + std::to_string(writer) + " wrote" + at_site(written.site) +
             ", without a fence_async between";
    }
  }
  return "";
}

std::string Races::write(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes) {
  std::string race = overwrite(access, offset, bytes);
  set_written(stamp(access), offset, bytes);
  return race;
}

void Races::landed(std::ptrdiff_t offset, std::ptrdiff_t bytes, int index) {
  set_written({.wave = kCopy,
               .clock = barrier(index).phases,
               .turn = static_cast<std::uint32_t>(index),
               .site = {}},
              offset, bytes);
}

void Races::set_written(const Stamped& by, std::ptrdiff_t offset, std::ptrdiff_t bytes) {
  for (std::ptrdiff_t i = offset / kCellBytes; i * kCellBytes < offset + bytes; ++i) {
    Cell& cell = fresh(i);
    cell.written = by;
    forget_reads(cell);
  }
}

std::string Races::sentence(const char* what, std::ptrdiff_t index, const Stamped& other,
                            const char* did) const {
  const std::string start =
      std::string("race: ") + what + " LDS byte " + std::to_string(index * kCellBytes) + ", which ";
  if (other.wave == kCopy) {
    return start + "an asynchronous copy or post wrote, without a wait for its barrier";
  }
  return start + "thread " + std::to_string(thread(other.wave, std::countr_zero(other.lanes))) +
         " " + did + at_site(other.site) + ", and nothing orders the two";
}

}  // namespace hipnorm::emulator
