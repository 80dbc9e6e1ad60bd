// When is a config faster, or slower, than the default?
#include "bench/tune/statistics.h"

#include <gtest/gtest.h>

#include "bench/tune/journal.h"

namespace hipnorm::tune {
namespace {

constexpr double kUs = 1e-6;

std::vector<double> same(double value) { return std::vector<double>(41, value); }

// `value` in the middle of samples that lie evenly within ± `width`.
std::vector<double> around(double value, double width) {
  std::vector<double> samples;
  for (int i = -20; i <= 20; ++i) samples.push_back(value + width * i / 20);
  return samples;
}

TEST(Statistics, MedianAndSpread) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(spread({5}), 0);
  EXPECT_EQ(spread({1, 1, 1, 1}), 0);
  EXPECT_NEAR(spread(around(7, 2)), 2 / std::sqrt(41), 1e-12);
  // An outlier says nothing.
  std::vector<double> disturbed = around(7, 2);
  disturbed.back() = 1000;
  EXPECT_EQ(spread(disturbed), spread(around(7, 2)));
  EXPECT_NEAR(geometric_mean({1, 4}), 2, 1e-12);
}

TEST(Duels, TheTwinsGapDecides) {
  const auto of = [](double us) { return duel(same(10 * kUs), same(us * kUs), same(10.5 * kUs)); };
  EXPECT_NEAR(of(9).gap(), 0.5 * kUs, 1e-12);
  EXPECT_TRUE(of(9.4).faster());
  EXPECT_FALSE(of(9.6).faster());
  EXPECT_FALSE(of(10.9).slower());
  EXPECT_TRUE(of(11.1).slower());
}

// Twins that agree to the last tick: one tick more or less is chance.
TEST(Duels, OneTickDecidesNothing) {
  const double time = 150 * kTick;
  for (const int ticks : {-1, 0, 1}) {
    const Duel d = duel(same(time), same(time + ticks * kTick), same(time));
    EXPECT_EQ(d.gap(), kLeastGap);
    EXPECT_FALSE(d.faster() || d.slower()) << ticks;
  }
  EXPECT_TRUE(duel(same(time), same(time - 2 * kTick), same(time)).faster());
  EXPECT_TRUE(duel(same(time), same(time + 2 * kTick), same(time)).slower());
}

// Twins that agree by chance, though the samples of any of the three scatter.
TEST(Duels, WhatTheSamplesLeaveOpenDecidesNothing) {
  const double time = 10 * kUs, width = kUs;
  const double open = kSpreads * width / std::sqrt(41);
  for (int scattered = 0; scattered < 3; ++scattered) {
    const auto samples = [&](int which, double value) {
      return which == scattered ? around(value, width) : same(value);
    };
    const auto of = [&](double value) {
      return duel(samples(0, time), samples(1, value), samples(2, time));
    };
    EXPECT_NEAR(of(time).gap(), open, 1e-12);
    EXPECT_FALSE(of(time - 0.9 * open).faster() || of(time + 0.9 * open).slower());
    EXPECT_TRUE(of(time - 1.1 * open).faster() && of(time + 1.1 * open).slower());
  }
}

// Results are compared within a session only: whatever makes times incomparable starts another.
TEST(Sessions, HaveTheirOwnNames) {
  SessionInfo session;
  session.arch = "sm_90";
  session.name = "NVIDIA H200";
  session.driver = "driver 13000";
  session.compute_units = 132;
  session.build = "abc";
  session.make_id();
  const auto same_as = [&](auto change) {
    SessionInfo other = session;
    change(other);
    other.make_id();
    return other.id == session.id;
  };
  EXPECT_EQ(session.id.size(), 16u);
  EXPECT_FALSE(same_as([](SessionInfo& s) { s.arch = "sm_80"; }));
  EXPECT_FALSE(same_as([](SessionInfo& s) { s.name = "NVIDIA H100"; }));
  EXPECT_FALSE(same_as([](SessionInfo& s) { s.driver = "driver 13010"; }));
  EXPECT_FALSE(same_as([](SessionInfo& s) { s.compute_units = 114; }));
  EXPECT_FALSE(same_as([](SessionInfo& s) { s.build = "abd"; }));
  EXPECT_FALSE(same_as([](SessionInfo& s) { ++s.method; }));
  EXPECT_TRUE(same_as([](SessionInfo& s) { s.commit = "another, of the same sources"; }));
  EXPECT_TRUE(same_as([](SessionInfo& s) { s.started = "later"; }));
  const SessionInfo read = SessionInfo::from_json(session.to_json());
  EXPECT_EQ(read.to_json(), session.to_json());
}

}  // namespace
}  // namespace hipnorm::tune
