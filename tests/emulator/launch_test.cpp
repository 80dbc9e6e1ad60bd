// Launches: coordinates, limits, a .hip file as C++.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/emulator/block_sum.h"
#include "tests/emulator/schedule.h"

namespace hipnorm::testing {
namespace {

TEST(EmulatorLaunch, HipFile) {
  std::vector<std::int64_t> values(5000);
  std::iota(values.begin(), values.end(), 1);
  for (const emulator::Schedule& schedule : emulator::schedules(1)) {
    SCOPED_TRACE(to_string(schedule));
    const emulator::ScopedSchedule scoped(schedule);
    for (const int threads : {64, 256, 1024}) {
      std::int64_t sum = 0;
      ASSERT_EQ(block_sum(values.data(), 5000, &sum, threads), hipSuccess)
          << emulator::last_fault().message;
      EXPECT_EQ(sum, 5000 * 5001 / 2);
    }
  }
}

}  // namespace
}  // namespace hipnorm::testing
