// What select() remembers, and what it must not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/select.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::problem;

// Ten times as many problems as the memo has room for, twice: collisions, hits and misses.
TEST(Memo, NeverAnswersForAnotherProblem) {
  const Device device = test::cpu(16, 32);
  std::mt19937_64 random(3);
  std::vector<Problem> problems;
  for (int i = 0; i < 2560; ++i) problems.push_back(test::random_problem(random));
  for (int pass = 0; pass < 2; ++pass) {
    for (const Problem& p : problems) {
      for (int again = 0; again < 2; ++again) {
        const Selection selection = select(p, device);
        ASSERT_EQ(selection.config, default_config(p, device)) << to_string(p);
        ASSERT_EQ(selection.plan.workspace_bytes,
                  plan(selection.config, p, device).workspace_bytes);
      }
    }
  }
}

// One field changed at a time.
TEST(Memo, EveryFieldOfTheProblemCounts) {
  const Device device = test::cpu(16, 32);
  const Problem base = problem(Op::backward, DType::bf16, 2304, 16384);
  std::vector<Problem> problems(1, base);
  const auto add = [&](auto change) {
    problems.push_back(base);
    change(problems.back());
  };
  add([](Problem& p) { p.op = Op::backward_two_kernel; });
  add([](Problem& p) { p.x = DType::f32, p.weight = DType::f32; });
  add([](Problem& p) { p.weight = DType::f32; });
  add([](Problem& p) { p.rows = 2; });
  add([](Problem& p) { p.cols = 16385; });
  add([](Problem& p) { p.has_weight = false; });
  add([](Problem& p) { p.grads.dx = false; });
  add([](Problem& p) { p.grads.dweight = false; });
  add([](Problem& p) { p.grads.dbias = false; });
  for (const Problem& p : problems) select(p, device);
  for (const Problem& p : problems) {
    const Selection selection = select(p, device);
    const Config config = default_config(p, device);
    EXPECT_EQ(selection.config, config) << to_string(p);
    EXPECT_EQ(selection.plan.workspace_bytes, plan(config, p, device).workspace_bytes)
        << to_string(p);
  }
}

TEST(Memo, TellsDevicesApart) {
  const Problem p = problem(Op::forward, DType::bf16, 2304, 16384);
  const Device two = test::cpu(2, 32);
  const Device sixteen = test::cpu(16, 64);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(select(p, two).config.parts, 2);
    EXPECT_EQ(select(p, sixteen).config.parts, 16);
    EXPECT_EQ(select(p, sixteen).config.vec_bytes, 64);
  }
  // Another device in the same place.
  Device device = two;
  EXPECT_EQ(select(p, device).config.parts, 2);
  device = sixteen;
  EXPECT_EQ(select(p, device).config.parts, 16);
  device.max_vec_bytes = 16;
  EXPECT_EQ(select(p, device).config.vec_bytes, 16);
}

TEST(Memo, IsVoidWhenAGuardComesOrGoes) {
  const Device device = test::cpu(2, 32);
  const Problem p = problem(Op::forward, DType::f32, 2304, 16384);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(select(p, device).source, Source::chosen_default);
    const ForcedConfigGuard guard("forward=cpu_forward_split:split=2");
    EXPECT_EQ(select(p, device).source, Source::forced);
    EXPECT_EQ(select(p, device).config.variant, Variant::cpu_forward_split);
  }
  EXPECT_EQ(select(p, device).source, Source::chosen_default);
}

// Guards come and go on two threads while four others select: every answer is one that was right
// at some moment, and a guard that outlives the call is seen by every thread.
TEST(Memo, GuardsAreSeenByAllThreads) {
  const Device device = test::cpu(16, 32);
  std::vector<Problem> problems;
  for (int i = 0; i < 64; ++i) problems.push_back(problem(Op::backward, DType::f32, 64 + i, 4096));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::atomic<int> forced = 0;
  std::atomic<int> free = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        for (const Problem& p : problems) {
          const Selection selection = select(p, device);
          const bool was_forced = selection.source == Source::forced;
          (was_forced ? forced : free)++;
          const bool right = was_forced
                                 ? selection.config.variant == Variant::cpu_backward_two_kernel &&
                                       (selection.config.parts == 3 || selection.config.parts == 5)
                                 : selection.config == default_config(p, device);
          if (!right || validate(selection.config, p, device)) wrong++;
        }
      }
    });
  }
  std::vector<std::thread> forcers;
  for (const char* text :
       {"backward=cpu_backward_two_kernel:parts=3", "backward=cpu_backward_two_kernel:parts=5"}) {
    forcers.emplace_back([&, text] {
      for (int i = 0; i < 200; ++i) {
        const ForcedConfigGuard guard(text);
        // This thread may see the other's guard, but never none.
        if (select(problems[static_cast<std::size_t>(i) % 64], device).source != Source::forced) {
          wrong++;
        }
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : forcers) thread.join();
  while (free == 0) std::this_thread::yield();
  {
    const ForcedConfigGuard guard("backward=cpu_backward_two_kernel:parts=3");
    const int before = forced;
    while (forced < before + 1000) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(select(problems[0], device).source, Source::chosen_default);
}

// A hit takes some 40 ns, a miss some 10 µs. Medians, and a factor of five, so that neither a busy
// machine nor a sanitizer disturbs. The hits are those of a model with 32 problems.
TEST(Memo, AHitCostsAFractionOfAMiss) {
  const Device device = test::cpu(16, 32);
  const auto median_of = [&](bool hit) {
    std::vector<double> times;
    for (int i = 0; i < 501; ++i) {
      const Problem p = problem(Op::backward, DType::f32, hit ? 1000 + i % 32 : 10000 + i, 4096);
      const auto start = std::chrono::steady_clock::now();
      const Selection selection = select(p, device);
      const auto end = std::chrono::steady_clock::now();
      EXPECT_EQ(selection.source, Source::chosen_default);
      times.push_back(std::chrono::duration<double>(end - start).count());
    }
    std::nth_element(times.begin(), times.begin() + 250, times.end());
    return times[250];
  };
  const double miss = median_of(false);
  const double hit = median_of(true);
  EXPECT_LT(hit * 5, miss);
}

}  // namespace
}  // namespace hipnorm
