// The order in which a sweep tries configs, and which it leaves out.
#include "bench/tune/search_space.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm::tune {
namespace {

constexpr std::size_t kAll = 1'000'000;

// f(problem, device, its whole search space)
template <typename F>
void for_each_cell(F f) {
  const Device processor = test::cpu(16, 32);
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{512, 256}, {2304, 36864}, {4, 50257}};
  for (const Device* device :
       {&processor, &known_device("H200"), &known_device("MI300X"), &known_device("MI350X")}) {
    for (const Op op : {Op::forward, Op::backward, Op::backward_two_kernel}) {
      for (const auto& [rows, cols] : shapes) {
        const Problem problem = test::contiguous(op, DType::bf16, rows, cols);
        SCOPED_TRACE(device->arch + ' ' + to_string(problem));
        f(problem, *device, search_space(problem, *device, kAll));
      }
    }
  }
}

bool holds(const std::vector<Config>& list, const Config& config) {
  return std::find(list.begin(), list.end(), config) != list.end();
}

TEST(SearchSpace, BeginsWithTheDefaultThenGoesByPredictedTime) {
  std::size_t more = 0;
  for_each_cell([&](const Problem& problem, const Device& device, const auto& list) {
    ASSERT_FALSE(list.empty());
    EXPECT_EQ(list.front(), default_config(problem, device));
    double last = 0;
    for (std::size_t i = 1; i < list.size(); ++i) {
      const double seconds = predict(list[i], problem, device).seconds;
      ASSERT_GE(seconds, last) << to_string(list[i]);
      last = seconds;
      ASSERT_EQ(validate(list[i], problem, device), std::nullopt) << to_string(list[i]);
      ASSERT_EQ(std::count(list.begin(), list.end(), list[i]), 1) << to_string(list[i]);
    }
    more += list.size() > candidates(problem, device).size();
  });
  EXPECT_GT(more, 20u);  // mostly many more than dispatch itself would choose from
}

TEST(SearchSpace, LeavesOutWhatIsPredictedThreeTimesAsLong) {
  std::size_t left_out = 0;
  for_each_cell([&](const Problem& problem, const Device& device, const auto& list) {
    const double longest = 3 * predict(list.front(), problem, device).seconds;
    for (const Config& config : list) {
      ASSERT_LE(predict(config, problem, device).seconds, longest) << to_string(config);
    }
    for (const Config& config : candidates(problem, device)) {
      const bool slow = predict(config, problem, device).seconds > longest;
      ASSERT_NE(holds(list, config), slow) << to_string(config);
      left_out += slow;
    }
  });
  EXPECT_GT(left_out, 0u);
}

// What runs on request only is tried in its place: it may be the fastest.
TEST(SearchSpace, HoldsWhatRunsOnRequestOnly) {
  const Device& device = known_device("MI300X");
  const Problem problem = test::contiguous(Op::backward, DType::bf16, 2304, 36864);
  const std::vector<Config> list = search_space(problem, device, 20);
  EXPECT_TRUE(std::any_of(list.begin(), list.end(), [](const Config& config) {
    return config.variant == Variant::gpu_backward_group;
  }));
}

TEST(SearchSpace, KeepsTheFirstWhereOnlySomeAreWanted) {
  for_each_cell([&](const Problem& problem, const Device& device, const auto& list) {
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, list.size()}) {
      const std::vector<Config> some = search_space(problem, device, most);
      ASSERT_EQ(some.size(), std::min(most, list.size()));
      EXPECT_TRUE(std::equal(some.begin(), some.end(), list.begin()));
    }
  });
}

}  // namespace
}  // namespace hipnorm::tune
