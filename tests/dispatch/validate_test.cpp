#include "csrc/dispatch/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "csrc/dispatch/cost_model.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::problem;
using ::testing::HasSubstr;

const Device& device() {
  static const Device d = test::cpu(16, 32);
  return d;
}

// The reason, or "valid".
std::string judged(const Config& config, const Problem& p, const Device& d = device()) {
  return validate(config, p, d).value_or("valid");
}

Config two_kernel(int parts, int split) {
  Config config{.variant = Variant::cpu_backward_two_kernel};
  config.rows_per_block = 2;
  config.vec_bytes = 32;
  config.parts = parts;
  config.split = split;
  return config;
}

TEST(Validate, AVariantServesItsOwnOps) {
  const auto served = [](Variant variant, Op op) {
    Config config{.variant = variant};
    for (const ConfigField& field : kConfigFields) {
      config.*field.value = (info(variant).*field.limits).low;
    }
    return judged(config, problem(op, DType::f32, 100, 1000)) == "valid";
  };
  EXPECT_TRUE(served(Variant::cpu_forward_row, Op::forward));
  EXPECT_TRUE(served(Variant::cpu_backward_row, Op::backward));
  EXPECT_TRUE(served(Variant::cpu_backward_row, Op::backward_fused));
  EXPECT_FALSE(served(Variant::cpu_backward_row, Op::backward_two_kernel));
  EXPECT_TRUE(served(Variant::cpu_backward_sums_first, Op::backward));
  EXPECT_TRUE(served(Variant::cpu_backward_sums_first, Op::backward_two_kernel));
  EXPECT_FALSE(served(Variant::cpu_backward_sums_first, Op::backward_fused));
  EXPECT_FALSE(served(Variant::cpu_backward_sums_first, Op::forward));
  EXPECT_EQ(judged({.variant = Variant::cpu_forward_row}, problem(Op::backward, DType::f32, 1, 1)),
            "cpu_forward_row is no backward variant");
  EXPECT_EQ(judged({.variant = Variant{200}}, problem(Op::forward, DType::f32, 1, 1)),
            "there is no variant number 200");
}

TEST(Validate, ACpuVariantDoesNotRunOnAGpu) {
  Device gpu;
  gpu.arch = "sm_90";
  gpu.kind = DeviceKind::gpu;
  EXPECT_EQ(judged(two_kernel(1, 1), problem(Op::backward, DType::f32, 9, 9), gpu),
            "cpu_backward_two_kernel runs on the CPU, but sm_90 is a GPU");
}

TEST(Validate, RefusesProblemsThatAreNone) {
  const Problem good = problem(Op::backward, DType::bf16, 100, 1000);
  const auto judged_with = [&](auto change) {
    Problem p = good;
    change(p);
    return judged(two_kernel(2, 2), p);
  };
  EXPECT_EQ(judged_with([](Problem&) {}), "valid");
  EXPECT_THAT(judged_with([](Problem& p) { p.rows = -1; }), HasSubstr("must not be negative"));
  EXPECT_THAT(judged_with([](Problem& p) { p.cols = -5; }), HasSubstr("100 and -5"));
  EXPECT_THAT(judged_with([](Problem& p) { p.x = DType::none; }), HasSubstr("x must be f32"));
  EXPECT_THAT(judged_with([](Problem& p) { p.weight = DType::f16; }),
              HasSubstr("must be bf16 or f32, but are f16"));
  EXPECT_THAT(judged_with([](Problem& p) { p.weight = DType::none; }), HasSubstr("but are none"));
  EXPECT_THAT(judged_with([](Problem& p) {
                p.has_weight = p.has_bias = false;
                p.weight = DType::none;
              }),
              HasSubstr("but are none"));  // dweight needs a dtype
  EXPECT_EQ(judged_with([](Problem& p) {
              p.has_weight = p.has_bias = false;
              p.weight = DType::none;
              p.grads = {true, false, false};
            }),
            "valid");
  for (int alignment : {-1, 0, 3, 48, 128}) {
    EXPECT_THAT(judged_with([&](Problem& p) { p.alignment = alignment; }),
                HasSubstr("alignment must be a power of two from 1 to 64"))
        << alignment;
  }
}

TEST(Validate, SizesAreBoundedBeforeTheyOverflow) {
  const std::int64_t k30 = std::int64_t{1} << 30;
  EXPECT_EQ(judged(two_kernel(1, 1), problem(Op::backward, DType::f64, k30, k30 / 4)), "valid");
  for (auto [rows, cols] : {std::pair{k30, k30 / 4 + 1},
                            {k30 * k30, k30 * 4},
                            {k30 * 8, k30 * 8},
                            {INT64_MAX, INT64_MAX},
                            {std::int64_t{1}, INT64_MAX}}) {
    EXPECT_THAT(judged(two_kernel(1, 1), problem(Op::backward, DType::f64, rows, cols)),
                HasSubstr("rows × cols must be at most 2^58"))
        << rows << 'x' << cols;
  }
  EXPECT_EQ(judged(two_kernel(1, 1), problem(Op::backward, DType::f64, 0, INT64_MAX)), "valid");
  EXPECT_EQ(judged(two_kernel(1, 1), problem(Op::backward, DType::f64, INT64_MAX, 0)), "valid");
}

TEST(Validate, NoStripAndNoPartIsEmpty) {
  const Problem p = problem(Op::backward, DType::f32, 5, 129);
  EXPECT_EQ(judged(two_kernel(5, 3), p), "valid");
  EXPECT_EQ(judged(two_kernel(6, 3), p), "parts=6, but there are only 5 rows");
  EXPECT_EQ(judged(two_kernel(5, 4), p), "split=4, but 129 cols are only 3 groups of 64");
  const Problem empty = problem(Op::backward, DType::f32, 0, 0);
  EXPECT_EQ(judged(two_kernel(1, 1), empty), "valid");
  EXPECT_THAT(judged(two_kernel(2, 1), empty), HasSubstr("parts=2"));
  EXPECT_THAT(judged(two_kernel(1, 2), empty), HasSubstr("split=2"));
}

TEST(Validate, TasksAndWorkspaceAreBounded) {
  const Problem p = problem(Op::backward, DType::f32, 100000, 300000);
  EXPECT_EQ(judged(two_kernel(256, 256), p), "valid");
  EXPECT_EQ(judged(two_kernel(256, 257), p),
            "parts=256 × split=257, but at most 65536 tasks may run");
  // One column: 16 bytes of row sums beside 2 × 2 bytes of tensors, and the converted weights.
  Config split{.variant = Variant::cpu_forward_split};
  split.vec_bytes = 16;
  split.split = 1;
  Problem column = problem(Op::forward, DType::bf16, 1 << 20, 1);
  column.weight = DType::f32;
  EXPECT_EQ(judged(split, column), "valid");
  column.rows = 1 << 26;
  EXPECT_THAT(
      judged(split, column),
      HasSubstr("split=1: the workspace would take 1025 MiB, but at most 1024 are allowed"));
}

TEST(Validate, VectorsAndRowsAreAPowerOfTwoThatTheDeviceHas) {
  const Problem p = problem(Op::backward, DType::f32, 100, 1000);
  Config config = two_kernel(1, 1);
  config.vec_bytes = 64;
  EXPECT_EQ(judged(config, p), "vec_bytes=64, but cpu-test has at most 32");
  EXPECT_EQ(judged(config, p, test::cpu(16, 64)), "valid");
  config.vec_bytes = 24;
  EXPECT_EQ(judged(config, p), "vec_bytes=24, but must be a power of two");
  config = two_kernel(1, 1);
  config.rows_per_block = 3;
  EXPECT_EQ(judged(config, p), "rows_per_block=3, but must be a power of two");
}

// Every field of every valid config, moved past each of its limits.
TEST(Validate, AFieldBeyondItsLimitsIsRefusedByName) {
  int refused = 0;
  test::for_each_problem(500, [&](const Problem& p) {
    const Config valid = default_config(p, device());
    ASSERT_EQ(judged(valid, p), "valid") << to_string(p);
    for (const ConfigField& field : kConfigFields) {
      const Limits limits = info(valid.variant).*field.limits;
      for (int value : {limits.low - 1, limits.high + 1, -2147483647 - 1, 2147483647}) {
        Config config = valid;
        config.*field.value = value;
        const auto reason = validate(config, p, device());
        ASSERT_TRUE(reason) << to_string(config) << ' ' << field.name << '=' << value;
        EXPECT_THAT(*reason, HasSubstr(std::string(field.name) + '=' + std::to_string(value)));
        ++refused;
      }
    }
  });
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace hipnorm
