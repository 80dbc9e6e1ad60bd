#include "csrc/dispatch/plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::problem;

Plan planned(Config config, const Problem& p) {
  const Device device = test::cpu(16, 64);
  config.vec_bytes = 64;
  if (info(config.variant).rows_per_block.high > 0) config.rows_per_block = 1;
  EXPECT_EQ(validate(config, p, device), std::nullopt) << to_string(p);
  return plan(config, p, device);
}

Config config(Variant variant, int parts, int split) {
  Config result{.variant = variant};
  result.parts = parts;
  result.split = split;
  return result;
}

TEST(Plan, ForwardRowOfF32NeedsNoWorkspace) {
  const Plan p =
      planned(config(Variant::cpu_forward_row, 3, 0), problem(Op::forward, DType::f32, 5, 1000));
  EXPECT_EQ(p.tasks, 3);
  EXPECT_EQ(p.partial_rows, 0);
  EXPECT_EQ(p.pitch, 1024);
  EXPECT_EQ(p.workspace_bytes, 0);
}

TEST(Plan, OnlyF32WeightsOfBf16InputsAreRepacked) {
  Problem forward = problem(Op::forward, DType::bf16, 5, 65);
  forward.weight = DType::f32;
  Plan p = planned(config(Variant::cpu_forward_row, 1, 0), forward);
  EXPECT_EQ(p.pitch, 128);
  EXPECT_EQ(p.weight_offset, 0);
  EXPECT_EQ(p.bias_offset, 128 * 4);
  EXPECT_EQ(p.workspace_bytes, 2 * 128 * 4);
  forward.has_weight = false;
  p = planned(config(Variant::cpu_forward_row, 1, 0), forward);
  EXPECT_EQ(p.bias_offset, 0);
  EXPECT_EQ(p.workspace_bytes, 128 * 4);

  // Backward needs no bias.
  Problem backward = problem(Op::backward, DType::bf16, 5, 65);
  backward.weight = DType::f32;
  backward.grads = {true, false, false};
  p = planned(config(Variant::cpu_backward_row, 1, 0), backward);
  EXPECT_EQ(p.workspace_bytes, 128 * 4);

  for (const auto& [x, weight] : {std::pair{DType::bf16, DType::bf16},
                                  {DType::f16, DType::f32},
                                  {DType::f16, DType::f16},
                                  {DType::f32, DType::f32}}) {
    Problem in_place = problem(Op::forward, x, 5, 65);
    in_place.weight = weight;
    p = planned(config(Variant::cpu_forward_row, 1, 0), in_place);
    EXPECT_EQ(p.workspace_bytes, 0);
  }
}

TEST(Plan, ForwardSplitKeepsTwoDoublesARowAndStrip) {
  // 3 × 5 pairs of 16 bytes are 240, rounded up to 256.
  const Plan p =
      planned(config(Variant::cpu_forward_split, 0, 5), problem(Op::forward, DType::f64, 3, 321));
  EXPECT_EQ(p.tasks, 5);
  EXPECT_EQ(p.sums_offset, 0);
  EXPECT_EQ(p.workspace_bytes, 256);
}

TEST(Plan, BackwardRowKeepsAPartialRowAPart) {
  Problem backward = problem(Op::backward, DType::f32, 100, 100);
  Plan p = planned(config(Variant::cpu_backward_row, 7, 0), backward);
  EXPECT_EQ(p.tasks, 7);
  EXPECT_EQ(p.partial_rows, 7);
  EXPECT_EQ(p.dweight_offset, 0);
  EXPECT_EQ(p.dbias_offset, 7 * 128 * 4);
  EXPECT_EQ(p.workspace_bytes, 2 * 7 * 128 * 4);
  backward.grads.dweight = false;
  p = planned(config(Variant::cpu_backward_row, 7, 0), backward);
  EXPECT_EQ(p.partial_rows, 7);
  EXPECT_EQ(p.dbias_offset, 0);
  EXPECT_EQ(p.workspace_bytes, 7 * 128 * 4);
  backward.grads.dbias = false;
  p = planned(config(Variant::cpu_backward_row, 7, 0), backward);
  EXPECT_EQ(p.tasks, 7);
  EXPECT_EQ(p.partial_rows, 0);
  EXPECT_EQ(p.workspace_bytes, 0);
  // f64 sums in f64.
  p = planned(config(Variant::cpu_backward_row, 7, 0), problem(Op::backward, DType::f64, 9, 64));
  EXPECT_EQ(p.workspace_bytes, 2 * 7 * 64 * 8);
}

TEST(Plan, TwoKernelAndSumsFirstRunPartsTimesSplit) {
  Problem backward = problem(Op::backward, DType::bf16, 10, 200);
  backward.weight = DType::f32;
  Plan p = planned(config(Variant::cpu_backward_two_kernel, 2, 3), backward);
  EXPECT_EQ(p.tasks, 6);
  EXPECT_EQ(p.partial_rows, 2);
  EXPECT_EQ(p.workspace_bytes, 256 * 4 + 2 * 2 * 256 * 4);
  p = planned(config(Variant::cpu_backward_sums_first, 2, 3), backward);
  EXPECT_EQ(p.tasks, 6);
  EXPECT_EQ(p.sums_offset, 256 * 4);
  EXPECT_EQ(p.dweight_offset, 256 * 4 + 512);  // 10 × 3 × 16 = 480 → 512
  EXPECT_EQ(p.dbias_offset, p.dweight_offset + 2 * 256 * 4);
  EXPECT_EQ(p.workspace_bytes, p.dbias_offset + 2 * 256 * 4);
  backward.grads.dx = false;  // no row sums then
  p = planned(config(Variant::cpu_backward_sums_first, 2, 3), backward);
  EXPECT_EQ(p.dweight_offset, 256 * 4);
}

TEST(Plan, NothingToRunIsPlannedAsNothing) {
  const std::int64_t huge = std::int64_t{1} << 62;
  for (auto [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 0}, {0, huge}, {huge, 0}}) {
    const Plan p = planned(config(Variant::cpu_backward_sums_first, 1, 1),
                           problem(Op::backward, DType::bf16, rows, cols));
    EXPECT_EQ(p.tasks, 0);
    EXPECT_EQ(p.pitch, 0);
    EXPECT_EQ(p.workspace_bytes, 0);
  }
}

}  // namespace
}  // namespace hipnorm
