// Fibers on Boost.Context's fcontext: a stack each out of one mapping, and a switch of some 10 ns.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <deque>
#include <vector>

namespace hipnorm::emulator {

// Where a fiber stands while it does not run.
struct Strand {
  boost::context::detail::fcontext_t context = nullptr;
  char* stack = nullptr;  // its lowest address; null: this thread's own stack, before any switch
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// Runs `to` until something switches back to `from`.
void switch_strand(Strand& from, Strand& to);

// Stacks with a guard page below each. They stay mapped for the next launch.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // At least `count` strands that will run `entry`, which must not return. New ones, and after
  // drop_all() old ones, start at its beginning; others go on where they stand.
  void provide(std::size_t count, void (*entry)());
  Strand& operator[](std::size_t i) { return strands_[i]; }
  std::size_t size() const { return strands_.size(); }
  // Abandons whatever the fibers were at. Nothing on their stacks is destroyed.
  void drop_all();

  // Two mappings a stack, of the 65530 that Linux allows a process.
  static constexpr std::size_t kMost = 16384;

 private:
  struct Region {
    char* memory;
    std::size_t bytes;
  };
  void start(Strand& strand, std::size_t i);
  std::vector<Region> regions_;
  std::deque<Strand> strands_;  // not a vector: suspended fibers hold their addresses
};

}  // namespace hipnorm::emulator
