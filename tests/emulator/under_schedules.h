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

// `launch` returns what launch_kernel did, `right` whether the result is the expected one.
inline void expect_right(const std::function<hipError_t()>& launch,
                         const std::function<bool()>& right, int rounds = 4) {
  for (const emulator::Schedule& schedule : emulator::schedules(1, rounds)) {
    const emulator::ScopedSchedule scoped(schedule);
    ASSERT_EQ(launch(), hipSuccess)
        << to_string(schedule) << ": " << emulator::last_fault().message;
    ASSERT_TRUE(right()) << to_string(schedule);
  }
}

}  // namespace hipnorm::testing
