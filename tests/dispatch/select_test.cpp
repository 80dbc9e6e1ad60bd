#include "csrc/dispatch/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::problem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Device& device() {
  static const Device d = test::cpu(2, 32);
  return d;
}

std::string select_error(const Problem& p, const Device& d = device()) {
  try {
    select(p, d);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Select, TakesTheDefaultWhereNothingIsForced) {
  const Problem p = problem(Op::forward, DType::f32, 2304, 16384);
  const Selection selection = select(p, device());
  EXPECT_EQ(selection.config, default_config(p, device()));
  EXPECT_EQ(selection.source, Source::chosen_default);
  EXPECT_EQ(selection.plan.tasks, 2);
  EXPECT_EQ(describe(selection),
            "cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=2,stream=1  source=default");
}

TEST(Select, CompletesAForcedConfigWithTheCheapestThatAgrees) {
  const Problem p = problem(Op::backward, DType::f32, 2304, 16384);
  const ForcedConfigGuard guard("backward=cpu_backward_sums_first:rows_per_block=2,vec_bytes=16");
  const Selection selection = select(p, device());
  EXPECT_EQ(selection.source, Source::forced);
  EXPECT_EQ(selection.config.rows_per_block, 2);
  EXPECT_EQ(selection.config.vec_bytes, 16);
  for (const Config& config : candidates(p, device())) {
    if (config.variant != selection.config.variant || config.rows_per_block != 2 ||
        config.vec_bytes != 16) {
      continue;
    }
    EXPECT_EQ(selection.config, config);
    break;
  }
  // Other ops, and the same backward by another name, stay as they are.
  EXPECT_EQ(select(problem(Op::forward, DType::f32, 9, 9), device()).source,
            Source::chosen_default);
  EXPECT_EQ(select(problem(Op::backward_two_kernel, DType::f32, 2304, 16384), device()).source,
            Source::chosen_default);
}

TEST(Select, HonoursForcedValuesThatNoCandidateHas) {
  const Problem small = problem(Op::backward, DType::f32, 33, 4097);
  {
    const ForcedConfigGuard guard("backward=cpu_backward_two_kernel:parts=33,rows_per_block=1");
    const Config config = select(small, device()).config;
    EXPECT_EQ(config.parts, 33);
    EXPECT_EQ(config.rows_per_block, 1);
    EXPECT_EQ(config.variant, Variant::cpu_backward_two_kernel);
  }
  {
    // Beside 2048 parts the usual 128 strips are too many tasks: fewer strips, not a refusal.
    const Device wide = test::cpu(128, 32);
    const ForcedConfigGuard guard("backward=cpu_backward_sums_first:parts=2048");
    const Config config = select(problem(Op::backward, DType::f32, 2048, 100000), wide).config;
    EXPECT_EQ(config.parts, 2048);
  }
}

TEST(Select, AForcedConfigThatCannotApplyThrows) {
  {
    const ForcedConfigGuard guard("forward=cpu_forward_row:parts=6,vec_bytes=16");
    EXPECT_THAT(select_error(problem(Op::forward, DType::f32, 5, 100)),
                AllOf(HasSubstr("cpu_forward_row:vec_bytes=16,parts=6"),
                      HasSubstr("forward f32 5x100"), HasSubstr("there are only 5 rows")));
    // Not ignored the second time, and fine where it applies.
    EXPECT_THAT(select_error(problem(Op::forward, DType::f32, 5, 100)), HasSubstr("only 5 rows"));
    EXPECT_EQ(select_error(problem(Op::forward, DType::f32, 6, 100)), "no error");
  }
  {
    const ForcedConfigGuard guard("forward=cpu_forward_row:vec_bytes=64");
    EXPECT_THAT(select_error(problem(Op::forward, DType::f32, 5, 100)), HasSubstr("at most 32"));
  }
  {
    const ForcedConfigGuard guard("backward=cpu_backward_row:rows_per_block=3");
    EXPECT_THAT(select_error(problem(Op::backward, DType::f32, 5, 100)),
                HasSubstr("rows_per_block=3, but must be a power of two"));
  }
  EXPECT_EQ(select_error(problem(Op::forward, DType::f32, 5, 100)), "no error");
}

TEST(Select, AForcedVariantSuitsEveryProblem) {
  for (std::size_t v = 0; v < variants().size(); ++v) {
    const VariantInfo& variant = variants()[v];
    if (variant.kind != DeviceKind::cpu) continue;
    const Op op = variant.forward ? Op::forward : Op::backward;
    const ForcedConfigGuard guard(std::string(to_string(op)) + '=' + std::string(variant.name));
    for (std::int64_t rows : {0, 1, 2, 33, 2304}) {
      for (std::int64_t cols : {0, 1, 63, 65, 1000, 103008}) {
        for (const Device& d : test::devices()) {
          const Problem p = problem(op, DType::bf16, rows, cols);
          const Selection selection = select(p, d);
          EXPECT_EQ(info(selection.config.variant).name, variant.name);
          EXPECT_EQ(validate(selection.config, p, d), std::nullopt) << to_string(p);
        }
      }
    }
  }
}

TEST(Select, RefusesWhatNoConfigCanRun) {
  EXPECT_THAT(select_error(problem(Op::forward, DType::f32, 1LL << 31, 1LL << 31)),
              AllOf(HasSubstr("2147483648x2147483648"), HasSubstr("at most 2^58")));
  EXPECT_THAT(select_error(problem(Op::forward, DType::f32, -1, 4)), HasSubstr("negative"));
}

// HIPNORM_LOG is read once, so each of these runs in a process of its own.
class SelectLog : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

int lines_of_log(const std::string& text) {
  std::istringstream in(text);
  int lines = 0;
  for (std::string line; std::getline(in, line);) lines += line.rfind("hipnorm: ", 0) == 0;
  return lines;
}

TEST_F(SelectLog, NamesConfigSourceAndWhyOthersWereRefused) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_LOG", "1", 1);
        for (int i = 0; i < 3; ++i) select(problem(Op::forward, DType::f32, 2304, 16384), device());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      ::testing::AllOf(
          ::testing::ResultOf(lines_of_log, 1),
          HasSubstr(
              "forward f32 2304x16384 weight=f32 bias alignment=64 on cpu-test -> "
              "cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=2,stream=1  source=default"),
          HasSubstr("refused: cpu_forward_split: predicted ")));
}

TEST_F(SelectLog, SaysThatAConfigWasForced) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_LOG", "1", 1);
        const ForcedConfigGuard guard("forward=cpu_forward_split");
        select(problem(Op::forward, DType::f32, 2304, 16384), device());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      AllOf(HasSubstr("source=forced"), HasSubstr("refused: cpu_forward_row: not forced")));
}

TEST_F(SelectLog, IsBounded) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_LOG", "1", 1);
        for (int i = 0; i < 1500; ++i) select(problem(Op::forward, DType::f32, i, 64), device());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      AllOf(::testing::ResultOf(lines_of_log, 1001),
            HasSubstr("HIPNORM_LOG ends here, after 1000 lines")));
}

TEST_F(SelectLog, IsSilentUnlessAsked) {
  EXPECT_EXIT(
      {
        setenv("HIPNORM_LOG", "0", 1);
        select(problem(Op::forward, DType::f32, 2304, 16384), device());
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), ::testing::ResultOf(lines_of_log, 0));
}

}  // namespace
}  // namespace hipnorm
