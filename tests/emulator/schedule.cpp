#include "tests/emulator/schedule.h"

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {

std::string to_string(const Schedule& schedule) {
  const auto name = [&] {
    switch (schedule.policy) {
      case Policy::random: return "random";
      case Policy::run_ahead: return "run_ahead";
      case Policy::hold_back: return "hold_back";
      case Policy::first_wave_first: return "first_wave_first";
      case Policy::last_wave_first: return "last_wave_first";
    }
    return "?";
  };
  return std::string(name()) + ", seed " + std::to_string(schedule.seed) +
         (schedule.preempt_on_lds ? ", preempt_on_lds" : "") +
         (schedule.detect_races ? "" : ", races undetected");
}

std::vector<Schedule> schedules(std::uint64_t seed, int rounds) {
  std::vector<Schedule> list;
  for (int round = 0; round < rounds; ++round) {
    for (const bool preempt_on_lds : {false, true}) {
      for (const Policy policy : {Policy::random, Policy::run_ahead, Policy::hold_back,
                                  Policy::first_wave_first, Policy::last_wave_first}) {
        list.push_back({.seed = seed++, .policy = policy, .preempt_on_lds = preempt_on_lds});
      }
    }
  }
  return list;
}

ScopedSchedule::ScopedSchedule(const Schedule& schedule) : before_(machine.schedule) {
  machine.schedule = schedule;
}
ScopedSchedule::~ScopedSchedule() { machine.schedule = before_; }

}  // namespace hipnorm::emulator
