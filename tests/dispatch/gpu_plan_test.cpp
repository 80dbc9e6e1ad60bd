#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "kernels/gpu/instances.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::contiguous;
using test::problem;

// What the runtime says in these tests.
int resident = 0;
int ask(const Config&, const Plan& plan, const Problem&, const Device&) {
  EXPECT_GT(plan.threads, 0);
  EXPECT_GT(plan.vectors, 0);
  return resident;
}

Plan planned(const char* text, const Problem& p, int groups = 0, const char* name = "H200") {
  PartialConfig config;
  std::string error;
  EXPECT_TRUE(parse_config(text, config, error)) << error;
  Device device = known_device(name);
  if (groups != 0) {
    resident = std::max(groups, 0);
    device.resident_groups = ask;
  }
  EXPECT_EQ(validate(config.config, p, device), std::nullopt) << to_string(p);
  return plan(config.config, p, device);
}

TEST(GpuPlan, ForwardWaveTakesRowsPerBlockRowsABlock) {
  // 256 bf16 are 32 packets: one for each lane of a wave; on CDNA two rows a wave.
  const Problem p = contiguous(Op::forward, DType::bf16, 1001, 256);
  Plan plan = planned("gpu_forward_wave:threads=256,rows_per_block=8", p);
  EXPECT_EQ(plan.tasks, 126);
  EXPECT_EQ(plan.groups, 0);
  EXPECT_EQ(plan.threads, 256);
  EXPECT_EQ(plan.vectors, 1);
  EXPECT_EQ(plan.lds_bytes, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);
  plan = planned("gpu_forward_wave:threads=256,rows_per_block=8", p, 0, "MI300X");
  EXPECT_EQ(plan.vectors, 1);
  plan = planned("gpu_forward_wave:threads=256,rows_per_block=32", p);  // on 8 lanes
  EXPECT_EQ(plan.tasks, 32);
  EXPECT_EQ(plan.vectors, 4);
}

TEST(GpuPlan, ForwardRowIsPersistentWithTwoStages) {
  const Problem p = contiguous(Op::forward, DType::f32, 1000, 4096);  // 1024 packets
  Plan plan = planned("gpu_forward_row:threads=512,stages=1", p, 300);
  EXPECT_EQ(plan.tasks, 1000);
  EXPECT_EQ(plan.groups, 0);
  EXPECT_EQ(plan.vectors, 2);
  // 300 resident: 4 steps, for which 250 do.
  plan = planned("gpu_forward_row:threads=256,stages=2", p, 300);
  EXPECT_EQ(plan.tasks, 250);
  EXPECT_EQ(plan.groups, 250);
  EXPECT_EQ(plan.vectors, 4);
  EXPECT_EQ(plan.partial_rows, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(GpuPlan, BackwardRing) {
  // 4608 packets on 8 blocks: 576 each, one a lane. A slice of 9216 bytes starts anywhere in a line
  // of 128, so it takes 9344. 4 stages of 2 rows of x and dy; for each of the 8 rows 16 bytes of
  // results and 8 of mean and rstd; 8 slots for the 8 × 18 waves' 2 × 2 floats; 20 barriers. Two
  // waves beside those that compute.
  const Problem p = contiguous(Op::backward, DType::bf16, 2304, 36864);
  const Plan plan =
      planned("gpu_backward_ring:threads=576,rows_per_block=2,split=8,stages=4", p, 15);
  EXPECT_EQ(plan.threads, 640);
  EXPECT_EQ(plan.vectors, 1);
  EXPECT_EQ(plan.lds_bytes, 4 * 2 * 2 * 9344 + 8 * (16 + 8) + 8 * 8 * 18 * 16 + 20 * 8);
  // 154 rows a group, 77 steps: 2304 ÷ 154 = 14.96.
  EXPECT_EQ(plan.groups, 15);
  EXPECT_EQ(plan.tasks, 120);
  EXPECT_EQ(plan.partial_rows, 15);
  EXPECT_EQ(plan.pitch, 36864);
  EXPECT_EQ(plan.dweight_offset, 0);
  EXPECT_EQ(plan.dbias_offset, 15 * 36864 * 4);
  EXPECT_EQ(plan.workspace_bytes, 2 * 15 * 36864 * 4);
}

TEST(GpuPlan, ForwardRingHasNoRowsPerBlock) {
  const Problem p = contiguous(Op::forward, DType::bf16, 2304, 36864);
  const Plan plan = planned("gpu_forward_ring:threads=384,split=3,stages=4", p, 39);
  EXPECT_EQ(plan.threads, 448);
  EXPECT_EQ(plan.vectors, 4);
  EXPECT_EQ(plan.groups, 39);  // 60 steps: 2304 ÷ 60 = 38.4
  EXPECT_EQ(plan.tasks, 117);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(GpuPlan, BackwardGroup) {
  // 4608 packets on 18 blocks: 256 each, 4 on each lane of a wave of 64. 8 waves of 64 lanes · 8
  // columns of floats beside the weights.
  const Problem p = contiguous(Op::backward, DType::bf16, 2304, 36864);
  const char* text = "gpu_backward_group:threads=512,split=18";
  Plan plan = planned(text, p, 16, "MI300X");
  EXPECT_EQ(plan.vectors, 4);
  EXPECT_EQ(plan.groups, 16);  // 18 steps of 8 rows
  EXPECT_EQ(plan.tasks, 16 * 18);
  EXPECT_EQ(plan.lds_bytes, 4 * 64 * 16 + 512 * 8 * 4);
  EXPECT_EQ(plan.sums_offset, 0);
  EXPECT_EQ(plan.dweight_offset, 2304 * 18 * 8);
  EXPECT_EQ(plan.dbias_offset - plan.dweight_offset, 16 * 36864 * 4);
  // As many on each of the 8 dies; where there are fewer, none waits for a second turn.
  EXPECT_EQ(planned(text, p, 23, "MI300X").groups, 16);
  EXPECT_EQ(planned(text, p, 7, "MI300X").groups, 7);
  EXPECT_EQ(planned(text, p, -1, "MI300X").tasks, 0);
  Problem wide = p;
  wide.weight = DType::f32;
  EXPECT_EQ(planned(text, wide, 16, "MI300X").lds_bytes, 4 * 64 * 32 + 512 * 8 * 4);
}

TEST(GpuPlan, ColumnKernels) {
  const Problem p = contiguous(Op::backward, DType::bf16, 1000, 4096);  // 512 packets: strips of 8
  Plan plan = planned("gpu_backward_two_kernel:threads=256,parts=3", p);
  EXPECT_EQ(plan.tasks, 1000);  // of the kernel that gives dx
  EXPECT_EQ(plan.vectors, 2);
  EXPECT_EQ(plan.partial_rows, 3);
  EXPECT_EQ(plan.lds_bytes, 256 * 8 * 4);
  EXPECT_EQ(plan.workspace_bytes, 2 * 3 * 4096 * 4);
  plan = planned("gpu_backward_sums_first:threads=256,parts=3", p);
  EXPECT_EQ(plan.tasks, 64 * 3);
  EXPECT_EQ(plan.sums_offset, 0);
  EXPECT_EQ(plan.dweight_offset, 8000);  // 1000 pairs of floats
  EXPECT_EQ(plan.dbias_offset, 8000 + 3 * 4096 * 4);
  plan = planned("gpu_backward_roles:threads=256", p);
  EXPECT_EQ(plan.tasks, 64 + 1000);
  EXPECT_EQ(plan.partial_rows, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);

  Problem no_dx = p;
  no_dx.grads = {false, true, false};
  plan = planned("gpu_backward_two_kernel:threads=256,parts=3", no_dx);
  EXPECT_EQ(plan.tasks, 64 * 3);
  EXPECT_EQ(plan.vectors, 0);
  EXPECT_EQ(plan.workspace_bytes, 3 * 4096 * 4);
  plan = planned("gpu_backward_sums_first:threads=256,parts=3", no_dx);
  EXPECT_EQ(plan.dweight_offset, 0);
}

TEST(GpuPlan, RowSumsOfF64) {
  // 5 pairs of 16 bytes are 80, rounded up to 128.
  const Plan plan = planned("gpu_backward_sums_first:threads=64,parts=1",
                            contiguous(Op::backward, DType::f64, 5, 64));
  EXPECT_EQ(plan.dweight_offset, 128);
  EXPECT_EQ(plan.workspace_bytes, 128 + 2 * 64 * 8);
}

TEST(GpuPlan, GroupsAreEvenedOut) {
  const auto groups = [](std::int64_t rows, int resident_groups) {
    return planned("gpu_backward_row:threads=64,stages=2",
                   contiguous(Op::backward, DType::f32, rows, 256), resident_groups)
        .groups;
  };
  EXPECT_EQ(groups(1, 132), 1);
  EXPECT_EQ(groups(132, 132), 132);
  EXPECT_EQ(groups(133, 132), 67);  // 2 steps
  EXPECT_EQ(groups(264, 132), 132);
  EXPECT_EQ(groups(265, 132), 89);  // 3 steps
  EXPECT_EQ(groups(1 << 20, 132), 132);
}

TEST(GpuPlan, GroupsKeepTheColumnsOfTheirLanes) {
  // Rows of 257 bf16: every eighth starts at the same place in a packet.
  const auto groups = [](const char* config, std::int64_t rows, int resident_groups) {
    return planned(config, contiguous(Op::backward, DType::bf16, rows, 257), resident_groups)
        .groups;
  };
  const char* row = "gpu_backward_row:threads=64,stages=2";
  EXPECT_EQ(groups(row, 30, 30), 30);   // one row each
  EXPECT_EQ(groups(row, 31, 30), 16);   // 24 at most: 2 steps, for which 16 do
  EXPECT_EQ(groups(row, 100, 30), 24);  // 5 steps, for which 20 would do
  EXPECT_EQ(groups(row, 1000, 3), 8);   // more than are resident
  EXPECT_EQ(groups(row, 7, 3), 7);
  // Eight rows a block are the whole period.
  const char* wave = "gpu_backward_wave:threads=256,rows_per_block=8";
  EXPECT_EQ(groups(wave, 1000, 3), 3);
  EXPECT_EQ(groups("gpu_backward_wave:threads=128,rows_per_block=4", 1000, 7), 6);
  // The rows of a ring's step are P apart, too.
  const char* ring = "gpu_backward_ring:threads=64,rows_per_block=4,split=1,stages=2";
  EXPECT_EQ(groups(ring, 1000, 30), 24);  // 42 rows each, 11 steps: 22.7
  EXPECT_EQ(groups(ring, 20, 30), 20);
}

TEST(GpuPlan, WhereTheRuntimeHoldsNoGroupNothingRuns) {
  const Plan plan = planned("gpu_backward_row:threads=64,stages=2",
                            contiguous(Op::backward, DType::f32, 100, 256), -1);
  EXPECT_EQ(plan.tasks, 0);
  EXPECT_EQ(plan.groups, 0);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(GpuPlan, GridsStayBelowTheirLimit) {
  Problem p = problem(Op::forward, DType::f32, std::int64_t{1} << 40, 4);
  const Plan plan = planned("gpu_forward_row:threads=64,stages=1", p);
  EXPECT_EQ(plan.tasks, 2147483632);  // a multiple of 16, the longest period
}

TEST(GpuPlan, NothingToRunIsPlannedAsNothing) {
  const std::int64_t huge = std::int64_t{1} << 62;
  for (auto [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 0}, {0, huge}, {huge, 0}}) {
    const Plan plan = planned("gpu_backward_ring:threads=64,rows_per_block=1,split=1,stages=2",
                              problem(Op::backward, DType::bf16, rows, cols), 15);
    EXPECT_EQ(plan.tasks, 0);
    EXPECT_EQ(plan.workspace_bytes, 0);
  }
}

// Over everything that the default may choose.
TEST(GpuPlan, PersistentGroupsKeepTheirRules) {
  int persistent = 0;
  int count = 0;
  test::for_each_problem(4000, [&](const Problem& p) {
    const Device& device = test::gpus()[++count % test::gpus().size()];
    for (const Config& config : candidates(p, device)) {
      const Plan sizes = plan(config, p, device);
      if (sizes.groups == 0) continue;
      ++persistent;
      SCOPED_TRACE(to_string(p) + ' ' + to_string(config) + ' ' + device.arch);
      const bool wave = config.variant == Variant::gpu_backward_wave;
      const std::int64_t block = wave ? config.rows_per_block : 1;
      const std::int64_t units = (p.rows + block - 1) / block;
      const std::int64_t split = std::max(1, config.split);
      ASSERT_EQ(sizes.tasks, sizes.groups * split);
      ASSERT_LE(sizes.groups, units);
      ASSERT_LE(sizes.tasks, 1 << 25);
      ASSERT_TRUE(sizes.groups == units || sizes.groups * block % gpu::shift_period(p) == 0);
      ASSERT_EQ(sizes.partial_rows, p.grads.columns() ? sizes.groups : 0);
      ASSERT_GT(sizes.vectors, 0);
    }
  });
  EXPECT_GT(persistent, 10000);
}

}  // namespace
}  // namespace hipnorm
