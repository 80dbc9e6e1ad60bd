// Turns and medians by a fake clock; what is known of the machine.
#include "bench/timer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/inputs.h"
#include "bench/machine.h"

namespace hipnorm::bench {
namespace {

// A clock that only the sides move: medians are exact on the busiest machine.
class FakeStopwatch final : public Stopwatch {
 public:
  void start() override { begin_ = now; }
  double stop() override { return now - begin_; }
  double now = 0;

 private:
  double begin_ = 0;
};

class TimerTest : public testing::Test {
 protected:
  // A side whose calls take these times in turn, over and over, and that notes its letter.
  Side side(char letter, std::vector<double> times) {
    return {[this] { ++prepared_; },
            [this, letter, times = std::move(times), call = std::size_t{0}]() mutable {
              stopwatch_.now += times[call++ % times.size()];
              order_ += letter;
            },
            [this] { ++finished_; }};
  }
  FakeStopwatch stopwatch_;
  std::string order_;
  int prepared_ = 0;
  int finished_ = 0;
};

TEST_F(TimerTest, FlushedCallsTakeTurnsAndGiveMedians) {
  const std::vector<Side> sides = {side('a', {1, 2, 90}), side('b', {5}), side('c', {7, 8})};
  CacheFlusher flusher(at::kCPU);
  const std::vector<double> seconds =
      time_flushed(sides, stopwatch_, flusher, {.seconds = 0, .least = 4, .most = 9});
  // Two rounds to warm up, then the least; who begins changes from round to round.
  EXPECT_EQ(order_,
            "abcabc"
            "abcbcacababc");
  EXPECT_EQ(prepared_, 18);
  EXPECT_EQ(finished_, 18);
  // The third to sixth call of each: a takes 90, 1, 2, 90; c takes 7, 8, 7, 8.
  EXPECT_EQ(seconds, (std::vector<double>{46, 5, 7.5}));
}

TEST_F(TimerTest, BatchesGiveTheTimeOfOneCall) {
  const std::vector<Side> sides = {side('a', {2e-4}), side('b', {1e-5})};
  const std::vector<double> seconds =
      time_batches(sides, stopwatch_, {.seconds = 0, .least = 3, .most = 3});
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_NEAR(seconds[0], 2e-4, 1e-9);
  EXPECT_NEAR(seconds[1], 1e-5, 1e-10);
  // 40 calls each to warm up, then 3 batches of 1 ms: 5 and 100 calls, one more where the quotient
  // is rounded up.
  EXPECT_NEAR(static_cast<double>(std::count(order_.begin(), order_.end(), 'a')), 40 + 15, 3);
  EXPECT_NEAR(static_cast<double>(std::count(order_.begin(), order_.end(), 'b')), 40 + 300, 3);
}

TEST_F(TimerTest, RoundsFollowTheTimeAllowed) {
  const std::vector<Side> sides = {side('a', {1e-2})};  // batches of one call, 10 ms a round
  time_batches(sides, stopwatch_, {.seconds = 0.5, .least = 3, .most = 100});
  EXPECT_NEAR(static_cast<double>(order_.size()), 40 + 50, 1);
}

TEST(Stopwatch, MeasuresRealTime) {
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(at::kCPU);
  stopwatch->start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(stopwatch->stop(), 5e-3);
}

// What this process burns is its own; what a child burns belongs to a neighbour.
TEST(Machine, TellsNeighboursFromItself) {
  const auto burn = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
    volatile int sink = 0;
    while (std::chrono::steady_clock::now() < end) sink = sink + 1;
  };
  const Neighbours alone;
  burn();
  const double before = alone.share();
  const Neighbours beside;
  const pid_t child = fork();
  if (child == 0) {
    burn();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const double during = beside.share();
  EXPECT_GE(before, 0);
  EXPECT_LE(before, 1);
  // Half of one processor's time, on however many there are.
  EXPECT_GE(during, 0.5 / std::max(1u, std::thread::hardware_concurrency()));
}

TEST(Machine, KnowsItsMemoryAndCaches) {
  EXPECT_GE(last_level_cache(), 256 << 10);
  const std::int64_t memory = available_memory();
  EXPECT_TRUE(memory == -1 || memory > (1 << 20)) << memory;
  EXPECT_FALSE(cpu_model().empty());
  // More than any machine has: 1e6 x 1e6 in f64, forward, is 24 TB.
  EXPECT_GT(needed_bytes({1000000, 1000000}, DType::f64, false, 1), std::int64_t{24} << 40 >> 1);
  EXPECT_LT(needed_bytes({7, 9}, DType::f64, true, 2), 128 << 20);
}

}  // namespace
}  // namespace hipnorm::bench
