// How much memory of torch's CPU allocator a call asks for: whether something was copied, or
// anything allocated at all.
#pragma once

#include <cstdint>

namespace hipnorm::testing {

// Counts the allocations of this process for as long as it lives.
class AllocationCount {
 public:
  AllocationCount();
  std::int64_t bytes() const;  // asked for since construction, freed or not
  std::int64_t calls() const;

 private:
  std::int64_t bytes_before_;
  std::int64_t calls_before_;
};

}  // namespace hipnorm::testing
