#include "csrc/dispatch/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::cpu;
using test::problem;

struct Section {
  std::int64_t offset;
  std::int64_t bytes;
};

// What the plan's sections must hold at least, from the problem alone.
std::vector<Section> sections(const Config& config, const Problem& p, const Plan& plan) {
  const std::int64_t element = p.x == DType::f64 ? 8 : 4;
  const bool convert = p.x == DType::bf16 && p.weight == DType::f32;
  std::vector<Section> list;
  if (p.rows == 0 || p.cols == 0) return list;
  if (convert && p.has_weight) list.push_back({plan.weight_offset, p.cols * element});
  if (convert && p.has_bias && p.op == Op::forward)
    list.push_back({plan.bias_offset, p.cols * element});
  if (config.variant == Variant::cpu_forward_split ||
      (config.variant == Variant::cpu_backward_sums_first && p.grads.dx)) {
    list.push_back({plan.sums_offset, p.rows * config.split * 16});
  }
  const std::int64_t partial = config.parts * ((p.cols + 63) / 64 * 64) * element;
  if (p.grads.dweight) list.push_back({plan.dweight_offset, partial});
  if (p.grads.dbias) list.push_back({plan.dbias_offset, partial});
  return list;
}

void check_plan(const Config& config, const Problem& p, const Device& device) {
  const Plan result = plan(config, p, device);
  std::int64_t end = 0;
  for (const Section& section : sections(config, p, result)) {
    ASSERT_EQ(section.offset % 64, 0);
    ASSERT_GE(section.offset, end);
    ASSERT_GT(section.bytes, 0);
    end = section.offset + section.bytes;
  }
  ASSERT_GE(result.workspace_bytes, end);
  ASSERT_EQ(result.workspace_bytes % 64, 0);
  ASSERT_LE(result.workspace_bytes - end, 64 * 8);  // rounding only
  const bool empty = p.rows == 0 || p.cols == 0;
  ASSERT_EQ(result.tasks, empty ? 0 : std::max(1, config.parts) * std::max(1, config.split));
  ASSERT_EQ(result.partial_rows, !empty && p.grads.columns() ? config.parts : 0);
  ASSERT_TRUE(empty || (result.pitch >= p.cols && result.pitch - p.cols < 64));
}

TEST(CostModel, EveryProblemHasAValidDefaultThatNoCandidateBeats) {
  int problems = 0;
  test::for_each_problem(12000, [&](const Problem& p) {
    const Device& device = test::devices()[problems++ % test::devices().size()];
    SCOPED_TRACE(to_string(p) + " on " + device.arch + ' ' + std::to_string(device.compute_units));
    const Config chosen = default_config(p, device);
    SCOPED_TRACE(to_string(chosen));
    ASSERT_EQ(validate(chosen, p, device), std::nullopt);
    ASSERT_NO_FATAL_FAILURE(check_plan(chosen, p, device));

    const std::vector<Config> all = candidates(p, device);
    ASSERT_FALSE(all.empty());
    ASSERT_LE(all.size(), 400u);
    EXPECT_EQ(all.front(), chosen);
    double before = 0;
    for (const Config& candidate : all) {
      ASSERT_EQ(validate(candidate, p, device), std::nullopt) << to_string(candidate);
      ASSERT_NO_FATAL_FAILURE(check_plan(candidate, p, device)) << to_string(candidate);
      const Cost cost = predict(candidate, p, device);
      ASSERT_GE(cost.bytes, 0) << to_string(candidate);
      ASSERT_GE(cost.seconds, before) << to_string(candidate);
      before = cost.seconds;
      EXPECT_EQ(std::count(all.begin(), all.end(), candidate), 1) << to_string(candidate);
    }
  });
  EXPECT_GT(problems, 20000);
}

// 16384 elements: below that a second thread does not pay.
TEST(CostModel, SmallProblemsRunOnOneThread) {
  for (const Device& device : test::devices()) {
    for (Op op : kOps) {
      for (auto [rows, cols] : {std::pair{1, 256}, {1, 16384}, {64, 256}, {16384, 1}, {16, 1000}}) {
        const Problem p = problem(op, DType::f32, rows, cols);
        EXPECT_EQ(plan(default_config(p, device), p, device).tasks, 1) << to_string(p);
      }
    }
  }
  const Problem p = problem(Op::forward, DType::f32, 512, 256);  // 8 × 16384
  EXPECT_EQ(default_config(p, cpu(2, 32)).parts, 2);
  EXPECT_EQ(default_config(p, cpu(128, 32)).parts, 8);
}

TEST(CostModel, FewLongRowsAreSharedByColumns) {
  for (int threads : {2, 16, 128}) {
    const Device device = cpu(threads, 32);
    for (DType x : {DType::f32, DType::bf16}) {
      const Problem forward = problem(Op::forward, x, 1, 10'000'000);
      EXPECT_EQ(default_config(forward, device).variant, Variant::cpu_forward_split);
      EXPECT_EQ(default_config(forward, device).split, threads);
      for (Op op : {Op::backward, Op::backward_two_kernel}) {
        const Problem backward = problem(op, x, 1, 10'000'000);
        EXPECT_EQ(default_config(backward, device).variant, Variant::cpu_backward_sums_first);
        EXPECT_EQ(default_config(backward, device).split, threads);
      }
    }
  }
}

TEST(CostModel, ManyRowsAreSharedByRows) {
  for (int threads : {2, 16}) {
    const Device device = cpu(threads, 32);
    for (auto [rows, cols] : {std::pair{1152, 11776},
                              {2304, 16384},
                              {2304, 36864},
                              {2304, 103008},
                              {4608, 40920},
                              {8192, 4096},
                              {16384, 768}}) {
      for (DType x : {DType::f32, DType::bf16, DType::f16}) {
        // 2 MiB of the last level a thread do not hold x, dy, dW and dB rows of 412 KB each.
        if (threads == 16 && cols == 103008 && x == DType::f32) continue;
        const Config forward = default_config(problem(Op::forward, x, rows, cols), device);
        EXPECT_EQ(to_string(forward).substr(0, 16), "cpu_forward_row:");
        EXPECT_EQ(forward.parts, threads);
        const Problem p = problem(Op::backward, x, rows, cols);
        const Config backward = default_config(p, device);
        EXPECT_EQ(to_string(backward).substr(0, 17), "cpu_backward_row:") << to_string(p);
        EXPECT_EQ(backward.parts, threads * ((rows + threads * 4096 - 1) / (threads * 4096)))
            << to_string(p);
      }
    }
  }
}

// An accumulator sums at most about 4096 rows, as long as P × N partial sums stay below 2 % of the
// traffic, and never more than 4096 parts.
TEST(CostModel, AccumulatorsAreFlushed) {
  const Device device = cpu(2, 32);
  for (Op op : {Op::backward, Op::backward_fused, Op::backward_two_kernel}) {
    const Config wide = default_config(problem(op, DType::f32, 1 << 20, 768), device);
    EXPECT_EQ(wide.parts, 256) << to_string(wide);
    // 16·P·64 ≤ 0.02·3·2^20·4, with pitch 64 for one column: P ≤ 245.76.
    const Config narrow = default_config(problem(op, DType::f32, 1 << 20, 1), device);
    EXPECT_GE(narrow.parts, 240) << to_string(narrow);
    EXPECT_LE(narrow.parts, 246) << to_string(narrow);
    const Config endless = default_config(problem(op, DType::f32, 1LL << 31, 64), device);
    EXPECT_EQ(endless.parts, 4096) << to_string(endless);
  }
  Problem no_columns = problem(Op::backward, DType::f32, 1 << 20, 768);
  no_columns.grads = {true, false, false};
  EXPECT_EQ(default_config(no_columns, device).parts, 2);
}

// 4 rows of x and dy in half of a unit's share of the last level (8 MiB here), else 2, else 1.
TEST(CostModel, RowsAreFormedTogetherWhereTheyFit) {
  const Device device = cpu(2, 32);
  const auto rows_per_block = [&](DType x, std::int64_t cols) {
    return default_config(problem(Op::backward_fused, x, 2304, cols), device).rows_per_block;
  };
  EXPECT_EQ(rows_per_block(DType::f32, 103008), 4);
  // 4 rows of x and dy, and the next 4, beside two accumulators and the weight: 76 bytes a column,
  // for which there are four fifths of 16 MiB.
  EXPECT_EQ(rows_per_block(DType::f32, 176602), 4);
  EXPECT_EQ(rows_per_block(DType::f32, 176603), 2);
  EXPECT_EQ(rows_per_block(DType::bf16, 262144), 4);
  Problem two_rows = problem(Op::backward_fused, DType::f32, 2, 4096);
  EXPECT_EQ(default_config(two_rows, device).rows_per_block, 2);
}

TEST(CostModel, StoresBypassTheCachesOnlyWhereTheCallOverflowsTheLastLevel) {
  for (const Device& device : {cpu(2, 32), cpu(16, 64)}) {
    for (Op op : kOps) {
      for (DType x : {DType::f32, DType::bf16}) {
        // What a call reads and writes: two tensors forward, three backward.
        const int tensors = op == Op::forward ? 2 : 3;
        const std::int64_t rows = device.llc_bytes / 1024 / size_of(x) / tensors;
        EXPECT_EQ(default_config(problem(op, x, rows, 1024), device).stream, 0);
        EXPECT_EQ(default_config(problem(op, x, rows + 1, 1024), device).stream, 1);
      }
    }
  }
  Problem no_dx = problem(Op::backward, DType::f32, 1 << 20, 1024);
  no_dx.grads.dx = false;
  EXPECT_EQ(default_config(no_dx, cpu(2, 32)).stream, 0);
}

TEST(CostModel, BytesFollowTheTrafficTable) {
  const Device device = cpu(2, 32);
  const std::int64_t rows = 2304, cols = 16384;
  const double tensor = 4.0 * rows * cols;  // MNe, f32; larger than the last level
  const auto bytes = [&](const char* text, Op op) {
    PartialConfig config;
    std::string error;
    EXPECT_TRUE(parse_config(text, config, error)) << error;
    const Problem p = problem(op, DType::f32, rows, cols);
    EXPECT_EQ(validate(config.config, p, device), std::nullopt);
    return predict(config.config, p, device).bytes;
  };
  EXPECT_EQ(bytes("cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=2,stream=1", Op::forward),
            2 * tensor);
  EXPECT_EQ(bytes("cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=2,stream=0", Op::forward),
            3 * tensor);
  EXPECT_EQ(bytes("cpu_forward_split:vec_bytes=32,split=2,stream=1", Op::forward), 3 * tensor);
  EXPECT_EQ(bytes("cpu_backward_row:rows_per_block=4,vec_bytes=32,parts=2,stream=1", Op::backward),
            3 * tensor + 16.0 * 2 * cols);
  EXPECT_EQ(bytes("cpu_backward_two_kernel:rows_per_block=4,vec_bytes=32,split=1,parts=2,stream=1",
                  Op::backward),
            5 * tensor + 16.0 * 2 * cols);
  EXPECT_EQ(bytes("cpu_backward_sums_first:rows_per_block=4,vec_bytes=32,split=2,parts=1,stream=1",
                  Op::backward),
            5 * tensor + 16.0 * 1 * cols);
}

// 16-bit elements, which are converted; not short rows from beyond L2, which would be read in
// turns.
TEST(CostModel, RowsOf16BitsAreNormalisedInPairs) {
  const Device device = cpu(2, 32);
  for (std::int64_t cols : {128, 4096, 16384, 103008, 262144}) {
    for (const auto& [x, rows] : {std::pair(DType::f32, 1), std::pair(DType::f64, 1),
                                  std::pair(DType::f16, 2), std::pair(DType::bf16, 2)}) {
      EXPECT_EQ(default_config(problem(Op::forward, x, 2304, cols), device).rows_per_block, rows)
          << cols;
    }
  }
  EXPECT_EQ(default_config(problem(Op::forward, DType::bf16, 20000, 1024), device).rows_per_block,
            1);
}

// 64-byte vectors only where there is arithmetic to save.
TEST(CostModel, CoresOfALargeL2RelyOnThatAlone) {
  Device device = cpu(2, 64);
  device.l2_bytes = 2 << 20;
  device.llc_bytes = 300 << 20;
  const auto chosen = [&](Op op, DType x, std::int64_t rows, std::int64_t cols) {
    return default_config(problem(op, x, rows, cols), device);
  };
  EXPECT_EQ(chosen(Op::backward_fused, DType::f32, 2304, 36864).rows_per_block, 2);
  EXPECT_EQ(chosen(Op::backward_fused, DType::f32, 4608, 40920).rows_per_block, 1);
  EXPECT_EQ(chosen(Op::backward_fused, DType::bf16, 2304, 36864).rows_per_block, 4);
  EXPECT_EQ(chosen(Op::forward, DType::f32, 128, 4096).stream, 0);  // 4 MiB read and written
  EXPECT_EQ(chosen(Op::forward, DType::f32, 256, 4096).stream, 1);
}

TEST(CostModel, WideVectorsArePreferredWhereTheyPay) {
  for (const Device& device : test::devices()) {
    for (DType x : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (Op op : kOps) {
        const int widest = x == DType::f16 && op == Op::forward ? 32 : 64;
        EXPECT_EQ(default_config(problem(op, x, 1000, 1000), device).vec_bytes,
                  std::clamp(device.max_vec_bytes, 16, widest));
      }
    }
  }
}

TEST(CostModel, AGpuThatTellsNothingOfItselfHasADefault) {
  Device gpu;
  gpu.arch = "new";
  gpu.kind = DeviceKind::gpu;
  for (Op op : kOps) {
    const Problem p = problem(op, DType::f32, 1000, 1'000'000);
    EXPECT_EQ(validate(default_config(p, gpu), p, gpu), std::nullopt);
  }
}

}  // namespace
}  // namespace hipnorm
