// What Lds<T> calls besides its own check.
#include "tests/emulator/lds.h"

#include <cstring>
#include <string>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {

void bad_lds_access(std::ptrdiff_t offset, std::size_t size, std::size_t alignment, Site site) {
  const std::ptrdiff_t bytes = current->block->lds_bytes;
  const bool inside = offset >= 0 && offset <= bytes - static_cast<std::ptrdiff_t>(size);
  machine.fault(
      *machine.running, site,
      "access to " + std::to_string(size) + " bytes at LDS byte " + std::to_string(offset) +
          (inside ? ": misaligned, a multiple of " + std::to_string(alignment) + " was expected"
                  : ": out of bounds, the block has " + std::to_string(bytes)));
}

void on_lds_access(std::ptrdiff_t offset, std::size_t size, Site site) {
  constexpr std::uint32_t kOneIn = 16;
  if (machine.schedule.preempt_on_lds && machine.random.next() % kOneIn == 0) {
    machine.note_progress();
    machine.preempt();
  }
  const Block& block = block_of(*machine.running);
  if (block.races != nullptr) machine.note_access(offset, size, site);
  if (block.in_flight_count == 0) return;
  for (std::ptrdiff_t word = offset / 4; word * 4 < offset + static_cast<std::ptrdiff_t>(size);
       ++word) {
    if (block.in_flight[static_cast<std::size_t>(word)] != 0) {
      machine.fault(
          *machine.running, site,
          "access to LDS byte " + std::to_string(offset) +
              " while an asynchronous copy or post to it is in flight: a wait is missing");
    }
  }
}

void Machine::note_access(std::ptrdiff_t offset, std::size_t size, Site site) {
  constexpr std::size_t kMostLogged = 4096;
  if (accesses.size() >= kMostLogged) check_accesses();
  accesses.push_back({offset, size, bytes_before.size(), site});
  const unsigned char* bytes = running->thread.block->lds + offset;
  bytes_before.insert(bytes_before.end(), bytes, bytes + size);
}

void Machine::check_accesses() {
  Block& block = block_of(*running);
  std::string race;
  for (const LoggedAccess& logged : accesses) {
    const Access access{wave_of(*running), running->lane, logged.site};
    const bool same = std::memcmp(block.context.lds + logged.offset,
                                  bytes_before.data() + logged.before, logged.size) == 0;
    const auto size = static_cast<std::ptrdiff_t>(logged.size);
    race = same ? block.races->read(access, logged.offset, size)
                : block.races->write(access, logged.offset, size);
    if (race.empty()) continue;
    const Site site = logged.site;
    accesses.clear();
    fault(*running, site, race);
  }
  accesses.clear();
  bytes_before.clear();
}

// Asynchronously, by something the running thread issues.
void Machine::check_overwrite(const Fiber& thread, std::ptrdiff_t offset, std::ptrdiff_t bytes,
                              Site site, bool needs_fence) {
  const Races* known = block_of(thread).races;
  if (known == nullptr) return;
  const Access access{wave_of(thread), thread.lane, site};
  std::string race = known->overwrite(access, offset, bytes);
  if (race.empty() && needs_fence) race = known->unfenced(access, offset, bytes);
  if (!race.empty()) fault(thread, site, race);
}

}  // namespace hipnorm::emulator
