// How long select() takes on a GPU: a problem seen before, and new ones by each of the ways to
// their config. `dispatch_test --gtest_filter='LookUpTime*'` prints the times.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "csrc/dispatch/embedded_configs.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/select.h"
#include "csrc/dispatch/table.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

// The limits are those of an idle machine and an optimised build. The best of kRepeats counts,
// which others on the machine disturb least; debug builds and sanitizers are far from it.
constexpr double kHit = 200e-9, kNew = 20e-6;
#if defined(NDEBUG)
constexpr double kSlack = 4;
#else
constexpr double kSlack = 40;
#endif
constexpr int kRepeats = 25;

const Device& h200() { return known_device("H200"); }

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Problems of the seed shapes' and other widths, both directions.
std::vector<Problem> problems() {
  std::vector<Problem> list;
  for (const Op op : {Op::forward, Op::backward}) {
    for (const std::int64_t cols : {256, 769, 1024, 4096, 11776, 16384, 36864, 103008}) {
      for (const std::int64_t rows : {16, 2304}) {
        list.push_back(test::contiguous(op, DType::bf16, rows, cols));
      }
    }
  }
  return list;
}

// What the slowest of the problems takes when it is new, the best of kRepeats of each.
double slowest_new(const std::vector<Problem>& list, Source source, const char* name) {
  double slowest = 0, sum = 0;
  for (const Problem& problem : list) {
    double best = 1;
    for (int i = 0; i < kRepeats; ++i) {
      // Voids what is remembered.
      {
        const ForcedConfigGuard guard("backward_two_kernel=gpu_backward_two_kernel");
      }
      const auto begin = Clock::now();
      const Selection selection = select(problem, h200());
      best = std::min(best, since(begin));
      EXPECT_EQ(selection.source, source) << to_string(problem);
    }
    slowest = std::max(slowest, best);
    sum += best;
  }
  std::printf("%-8s %6.2f us, the slowest %6.2f us, of %zu problems\n", name,
              sum * 1e6 / static_cast<double>(list.size()), slowest * 1e6, list.size());
  return slowest;
}

TEST(LookUpTime, OfAProblemSeenBefore) {
  const std::vector<Problem> list = problems();
  double best = 1;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = Clock::now();
    for (const Problem& problem : list) select(problem, h200());
    best = std::min(best, since(begin) / static_cast<double>(list.size()));
  }
  std::printf("hit      %6.1f ns\n", best * 1e9);
  EXPECT_LT(best, kHit * kSlack);
}

TEST(LookUpTime, OfAProblemWithoutARow) {
  std::vector<Problem> list = problems();
  for (Problem& p : list) {  // no table has rows without a weight but with a bias
    p.has_weight = false;
    p.grads.dweight = false;
  }
  EXPECT_LT(slowest_new(list, Source::chosen_default, "default"), kNew * kSlack);
}

TEST(LookUpTime, OfAProblemInTheTableAndOfOnesNearIt) {
  std::vector<Problem> exact, near;
  for (const EmbeddedFile& file : embedded_configs()) {
    if (file.name != "configs/sm_90.csv") continue;
    const Table table(file.text, std::string(file.name));
    for (const TableRow& row : table.rows()) {
      exact.push_back(test::contiguous(row.key.op, row.key.x, row.key.rows, row.key.cols));
      Problem p = exact.back();
      p.rows += 1;  // as good for the row's config as its own shape
      if (select(p, h200()).source == Source::near) near.push_back(p);
    }
  }
  ASSERT_FALSE(exact.empty() || near.empty());
  EXPECT_LT(slowest_new(exact, Source::table, "exact"), kNew * kSlack);
  EXPECT_LT(slowest_new(near, Source::near, "near"), kNew * kSlack);
}

}  // namespace
}  // namespace hipnorm
