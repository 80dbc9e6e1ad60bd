// What Lds<T> calls besides its own check.
#include "tests/emulator/lds.h"

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

}  // namespace hipnorm::emulator
