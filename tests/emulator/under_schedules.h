// Runs a launch under many schedules.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <hip/hip_runtime.h>

#include "tests/emulator/schedule.h"

namespace hipnorm::testing {

constexpr int kWave = HIPNORM_EMULATED_WAVE;

// What launch_kernel returned.
using Launch = std::function<hipError_t()>;
// Whether the result is the expected one.
using Right = std::function<bool()>;

inline void expect_right(const Launch& launch, const Right& right, int rounds = 4) {
  for (const emulator::Schedule& schedule : emulator::schedules(1, rounds)) {
    const emulator::ScopedSchedule scoped(schedule);
    ASSERT_EQ(launch(), hipSuccess)
        << to_string(schedule) << ": " << emulator::last_fault().message;
    ASSERT_TRUE(right()) << to_string(schedule);
  }
}

// A fault whose message holds all `words`, under every schedule.
inline void expect_fault(const Launch& launch, const std::vector<std::string>& words,
                         int rounds = 4) {
  for (const emulator::Schedule& schedule : emulator::schedules(1, rounds)) {
    const emulator::ScopedSchedule scoped(schedule);
    ASSERT_EQ(launch(), hipErrorLaunchFailure) << to_string(schedule);
    const std::string message = emulator::last_fault().message;
    EXPECT_EQ(message, hipGetErrorString(hipErrorLaunchFailure));
    for (const std::string& word : words) {
      ASSERT_NE(message.find(word), message.npos)
          << to_string(schedule) << ": '" << word << "' was expected in: " << message;
    }
  }
}

// What the schedules alone find, without detecting races: a wrong result or a fault, whose message
// holds all `words`, under at least one in `one_in` of them.
inline void expect_caught(const Launch& launch, const Right& right,
                          const std::vector<std::string>& words, int one_in, int rounds = 4) {
  int caught = 0, tried = 0;
  for (emulator::Schedule schedule : emulator::schedules(1, rounds)) {
    schedule.detect_races = false;
    const emulator::ScopedSchedule scoped(schedule);
    ++tried;
    if (launch() == hipSuccess) {
      caught += right() ? 0 : 1;
      continue;
    }
    ++caught;
    const std::string message = emulator::last_fault().message;
    for (const std::string& word : words) {
      ASSERT_NE(message.find(word), message.npos)
          << to_string(schedule) << ": '" << word << "' was expected in: " << message;
    }
  }
  EXPECT_GE(caught * one_in, tried) << caught << " of " << tried << " schedules caught it";
}

}  // namespace hipnorm::testing
