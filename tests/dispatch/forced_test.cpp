#include "csrc/dispatch/forced.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace hipnorm {
namespace {

using ::testing::HasSubstr;

// The forced config of `op` as text, or "none".
std::string forced(Op op) {
  const auto config = forced_config(op);
  return config ? to_string(*config) : "none";
}

std::string guard_error(std::string_view text) {
  try {
    const ForcedConfigGuard guard(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Forced, AGuardForcesTheOpsItNames) {
  const std::uint64_t before = forced_generation();
  {
    const ForcedConfigGuard guard(
        "forward=cpu_forward_row:vec_bytes=16;backward=cpu_backward_sums_first;");
    EXPECT_NE(forced_generation(), before);
    EXPECT_EQ(forced(Op::forward), "cpu_forward_row:vec_bytes=16");
    EXPECT_EQ(forced(Op::backward), "cpu_backward_sums_first");
    EXPECT_EQ(forced(Op::backward_fused), "none");
    EXPECT_EQ(forced(Op::backward_two_kernel), "none");
  }
  EXPECT_NE(forced_generation(), before);
  EXPECT_EQ(forced(Op::forward), "none");
}

TEST(Forced, TheInnermostGuardThatNamesTheOpWins) {
  const ForcedConfigGuard outer("forward=cpu_forward_row; backward_fused = cpu_backward_row");
  {
    const ForcedConfigGuard inner("forward=cpu_forward_split");
    EXPECT_EQ(forced(Op::forward), "cpu_forward_split");
    EXPECT_EQ(forced(Op::backward_fused), "cpu_backward_row");
  }
  EXPECT_EQ(forced(Op::forward), "cpu_forward_row");
}

TEST(Forced, GuardsMayEndInAnyOrder) {
  auto first = std::make_unique<ForcedConfigGuard>("forward=cpu_forward_row");
  auto second = std::make_unique<ForcedConfigGuard>("forward=cpu_forward_split");
  first.reset();
  EXPECT_EQ(forced(Op::forward), "cpu_forward_split");
  second.reset();
  EXPECT_EQ(forced(Op::forward), "none");
}

TEST(Forced, SaysWhatItCannotRead) {
  EXPECT_THAT(guard_error(""), HasSubstr("expected op=config, but got ''"));
  EXPECT_THAT(guard_error(";forward=cpu_forward_row"), HasSubstr("expected op=config"));
  EXPECT_THAT(guard_error("forward=cpu_forward_row;;backward=cpu_backward_row"),
              HasSubstr("expected op=config, but got ''"));
  EXPECT_THAT(guard_error("cpu_forward_row"), HasSubstr("but got 'cpu_forward_row'"));
  EXPECT_THAT(guard_error("sideways=cpu_forward_row"),
              HasSubstr("unknown op 'sideways'; expected one of forward, backward, backward_fused, "
                        "backward_two_kernel"));
  EXPECT_THAT(guard_error("forward=cpu_forward_row;forward=cpu_forward_row"),
              HasSubstr("'forward' is named twice"));
  EXPECT_THAT(guard_error("backward_fused=cpu_backward_sums_first"),
              HasSubstr("'cpu_backward_sums_first' is no variant of backward_fused; expected one "
                        "of cpu_backward_row"));
  EXPECT_THAT(guard_error("forward="), HasSubstr("'' is no variant of forward; expected one of "
                                                 "cpu_forward_row, cpu_forward_split"));
  EXPECT_THAT(guard_error("forward=cpu_forward_row:rows=1"), HasSubstr("no field 'rows'"));
  EXPECT_THAT(guard_error("forward=cpu_forward_row:parts=-1"), HasSubstr("but is '-1'"));
  // The whole text is named, so that one knows where to look.
  EXPECT_THAT(guard_error("a=b;c=d"), HasSubstr("forced config 'a=b;c=d'"));
  EXPECT_EQ(forced(Op::forward), "none");  // no refused guard left anything behind
}

// The environment is read once, so each of these runs in a process of its own.
class ForcedByEnvironment : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ForcedByEnvironment, IsBelowEveryGuard) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_FORCE_CONFIG", "forward=cpu_forward_row:parts=1;backward=cpu_backward_row",
               1);
        bool good = forced(Op::forward) == "cpu_forward_row:parts=1";
        {
          const ForcedConfigGuard guard("forward=cpu_forward_split");
          good &= forced(Op::forward) == "cpu_forward_split";
          good &= forced(Op::backward) == "cpu_backward_row";
        }
        setenv("HIPNORM_FORCE_CONFIG", "forward=cpu_forward_split", 1);  // too late
        good &= forced(Op::forward) == "cpu_forward_row:parts=1";
        std::exit(good ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(ForcedByEnvironment, ThrowsAtEveryCallWhenItCannotBeRead) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_FORCE_CONFIG", "forward=cpu_sideways", 1);
        int thrown = 0;
        for (Op op : {Op::forward, Op::forward, Op::backward_fused}) {
          try {
            forced_config(op);
          } catch (const std::invalid_argument& error) {
            ++thrown;
            std::fprintf(stderr, "%s\n", error.what());
          }
        }
        std::exit(thrown == 3 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "HIPNORM_FORCE_CONFIG: .*'cpu_sideways' is no variant");
}

TEST_F(ForcedByEnvironment, EmptyIsUnset) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_FORCE_CONFIG", " ", 1);
        std::exit(forced(Op::forward) == "none" ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hipnorm
