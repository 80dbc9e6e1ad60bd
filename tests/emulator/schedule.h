// Orders in which the threads of a launch run. A kernel that lacks a barrier is right in some of
// them and wrong in others, so tests run each kernel under several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulator/host.h"

namespace hipnorm::emulator {

enum class Policy {
  random,     // the next thread is any that can run
  run_ahead,  // one wave, drawn anew now and then, runs as long as it can
  hold_back,  // one wave, drawn anew now and then, runs only when no other can
  first_wave_first,
  last_wave_first,
};
struct Schedule {
  std::uint64_t seed = 1;
  Policy policy = Policy::random;
  // A thread may be interrupted before any access to LDS (1 in 16 is), not only where it meets
  // others.
  bool preempt_on_lds = false;
  // Accesses to LDS that nothing orders are a fault, even where they ran in the right order. Costs
  // some 50 ns an access.
  bool detect_races = true;
  std::size_t lds_bytes = 227 << 10;  // that a block may have: sm_90's; AMD's have 64 or 160 KB
};
std::string to_string(const Schedule& schedule);

// Every policy with and without preempt_on_lds, `rounds` times with seeds from `seed` on.
std::vector<Schedule> schedules(std::uint64_t seed, int rounds = 1);

// Launches use this schedule as long as the object lives.
class ScopedSchedule {
 public:
  explicit ScopedSchedule(const Schedule& schedule);
  ~ScopedSchedule();
  ScopedSchedule(const ScopedSchedule&) = delete;
  ScopedSchedule& operator=(const ScopedSchedule&) = delete;

 private:
  Schedule before_;
};

// What went wrong in a launch. `message` names the kernel, block and thread, and what they did.
struct Fault {
  hipError_t error = hipSuccess;  // that launch_kernel returned
  std::string message;
  explicit operator bool() const { return !message.empty(); }
};
// Of the last launch; empty when it succeeded.
const Fault& last_fault();

struct Statistics {
  std::int64_t switches = 0;
};
// Of the last launch.
Statistics statistics();

}  // namespace hipnorm::emulator
