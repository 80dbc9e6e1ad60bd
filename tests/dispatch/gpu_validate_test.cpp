#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using test::contiguous;
using test::problem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The reason, or "valid".
std::string judged(const char* text, const Problem& p, const char* name = "H200") {
  PartialConfig config;
  std::string error;
  EXPECT_TRUE(parse_config(text, config, error)) << error;
  return validate(config.config, p, known_device(name)).value_or("valid");
}

Problem forward(std::int64_t cols, DType x = DType::bf16) {
  return contiguous(Op::forward, x, 2304, cols);
}
Problem backward(std::int64_t cols, DType x = DType::bf16) {
  return contiguous(Op::backward, x, 2304, cols);
}

TEST(GpuValidate, AGpuVariantDoesNotRunOnTheCpu) {
  Config config{.variant = Variant::gpu_forward_stream, .threads = 256};
  EXPECT_EQ(validate(config, forward(8), test::cpu(2, 32)),
            "gpu_forward_stream runs on the GPU, but cpu-test is a CPU");
}

TEST(GpuValidate, ThreadsAreWholeWaves) {
  EXPECT_EQ(judged("gpu_forward_row:threads=96,stages=1", forward(768)), "valid");
  EXPECT_EQ(judged("gpu_forward_row:threads=96,stages=1", forward(768), "MI300X"),
            "threads=96, but waves of gfx942 have 64 lanes");
  EXPECT_EQ(judged("gpu_forward_row:threads=100,stages=1", forward(768)),
            "threads=100, but waves of sm_90 have 32 lanes");
  EXPECT_EQ(judged("gpu_forward_row:threads=1056,stages=1", forward(768)),
            "threads=1056, but gpu_forward_row takes 64 to 1024");
  Device narrow = known_device("H200");
  narrow.max_threads = 512;
  Config row{.variant = Variant::gpu_forward_row, .threads = 1024};
  row.stages = 1;
  EXPECT_EQ(validate(row, forward(8), narrow),
            "threads=1024, but blocks of sm_90 have at most 512");
  // The waves that serve it count.
  Config ring{.variant = Variant::gpu_forward_ring, .threads = 512};
  ring.split = 1;
  ring.stages = 4;
  EXPECT_EQ(validate(ring, forward(4096), narrow),
            "threads=512 and the two waves that serve them, but blocks of sm_90 have at most 512");
}

TEST(GpuValidate, LanesOfARowAreAPowerOfTwoOfAWave) {
  EXPECT_EQ(judged("gpu_forward_wave:threads=256,rows_per_block=8", forward(256)), "valid");
  EXPECT_EQ(judged("gpu_forward_wave:threads=256,rows_per_block=4", forward(256)),
            "threads=256, rows_per_block=4, but a row takes a power of two of a wave's 32 lanes");
  EXPECT_EQ(judged("gpu_forward_wave:threads=256,rows_per_block=4", forward(256), "MI300X"),
            "valid");
  EXPECT_THAT(judged("gpu_forward_wave:threads=192,rows_per_block=8", forward(64)),
              HasSubstr("a power of two"));
  EXPECT_EQ(judged("gpu_forward_wave:threads=256,rows_per_block=12", forward(64)),
            "rows_per_block=12, but must be a power of two");
}

TEST(GpuValidate, TheRowFitsAnInstance) {
  // 8 packets of 8 bf16 in each of 32 lanes.
  const char* wave = "gpu_forward_wave:threads=256,rows_per_block=8";
  EXPECT_EQ(judged(wave, forward(2048)), "valid");
  EXPECT_EQ(judged(wave, forward(2056)),
            "threads=256, but 2056 cols are 257 packets, of which 32 lanes hold at most 256");
  // A row that starts anywhere in a packet touches one more.
  EXPECT_EQ(judged(wave, forward(2041)), "valid");
  EXPECT_THAT(judged(wave, forward(2047)), HasSubstr("2047 cols are 257 packets"));
  EXPECT_THAT(judged("gpu_forward_row:threads=512,stages=1", forward(65544)),
              HasSubstr("512 lanes hold at most 8192"));
  // f64 has no instances of more than 4.
  EXPECT_EQ(judged("gpu_forward_row:threads=64,stages=1", forward(512, DType::f64)), "valid");
  EXPECT_THAT(judged("gpu_forward_row:threads=64,stages=1", forward(514, DType::f64)),
              HasSubstr("64 lanes hold at most 256"));
}

TEST(GpuValidate, RegistersBoundTheThreads) {
  // 3 or 4 packets of x, dy and their sums: 255 registers a lane on NVIDIA, 256 on CDNA.
  const Problem p = backward(12288);  // 1536 packets
  EXPECT_EQ(judged("gpu_backward_row:threads=384,stages=1", p),
            "threads=384, but with 4 packets a lane at most 256 have registers on sm_90");
  EXPECT_EQ(judged("gpu_backward_row:threads=384,stages=1", p, "A100"),
            "threads=384, but with 4 packets a lane at most 256 have registers on sm_80");
  EXPECT_EQ(judged("gpu_backward_row:threads=384,stages=1", p, "MI300X"), "valid");
  // Whatever the wave: RDNA3's have 32 lanes.
  EXPECT_EQ(judged("gpu_backward_row:threads=384,stages=1", p, "RX 7900 XTX"), "valid");
}

TEST(GpuValidate, RingsNeedBulkCopiesAndClusters) {
  const char* ring = "gpu_backward_ring:threads=576,rows_per_block=2,split=8,stages=4";
  EXPECT_EQ(judged(ring, backward(36864)), "valid");
  EXPECT_EQ(judged(ring, backward(36864), "A100"),
            "gpu_backward_ring needs bulk copies to LDS, which sm_80 does not have");
  EXPECT_EQ(judged("gpu_forward_ring:threads=64,split=1,stages=2", forward(64), "MI300X"),
            "gpu_forward_ring needs bulk copies to LDS, which gfx942 does not have");
  EXPECT_EQ(judged(ring, backward(9216, DType::f64)), "gpu_backward_ring does not take f64");
  Device eight = known_device("H200");
  eight.max_cluster = 8;
  Config config{.variant = Variant::gpu_forward_ring, .threads = 512};
  config.split = 9;
  config.stages = 2;
  EXPECT_EQ(validate(config, forward(36864), eight),
            "split=9, but clusters of sm_90 have at most 8 blocks");
}

TEST(GpuValidate, GroupsTakeWholePacketsOnFewEnoughBlocks) {
  const char* group = "gpu_backward_group:threads=512,split=18";
  EXPECT_EQ(judged(group, backward(36864), "MI300X"), "valid");
  EXPECT_EQ(judged("gpu_backward_group:threads=256,split=32", backward(24576)), "valid");
  EXPECT_EQ(
      judged(group, backward(36868), "MI300X"),
      "gpu_backward_group takes rows of whole packets of 16 bytes, but rows of 36868 cols are "
      "aligned to 8");
  Problem one_row = backward(36868);  // aligned, being the only one
  one_row.rows = 1;
  one_row.alignment = 64;
  EXPECT_THAT(judged(group, one_row, "MI300X"), HasSubstr("whole packets"));
  EXPECT_EQ(judged(group, backward(36864, DType::f64), "MI300X"),
            "gpu_backward_group does not take f64");
  EXPECT_EQ(judged("gpu_backward_group:threads=256,split=29", backward(36872)),
            "gpu_backward_group of 5 packets a lane is not built for sm_90");
  EXPECT_EQ(judged("gpu_backward_group:threads=256,split=33", backward(36864)),
            "split=33, but a wave of sm_90 asks for at most 32 blocks' sums at once");
  EXPECT_EQ(judged("gpu_backward_group:threads=512,split=17", backward(2048), "MI300X"),
            "split=17, but of the 256 packets of 2048 cols each of the first blocks takes 16, and "
            "none is left for the last");
  EXPECT_THAT(judged("gpu_backward_group:threads=512,split=8", backward(36864), "MI300X"),
              HasSubstr("576 packets a block"));
  Device alone = known_device("MI300X");
  alone.cooperative = false;
  Config config{.variant = Variant::gpu_backward_group, .threads = 512};
  config.split = 18;
  EXPECT_EQ(validate(config, backward(36864), alone),
            "gpu_backward_group needs cooperative launches, which gfx942 does not have");
  Device few = known_device("MI300X");
  few.compute_units = 17;
  EXPECT_EQ(validate(config, backward(36864), few),
            "split=18, but gfx942 does not hold so many blocks");
}

TEST(GpuValidate, RingsSlicesFitAndAreNotEmpty) {
  EXPECT_EQ(
      judged("gpu_backward_ring:threads=544,rows_per_block=2,split=8,stages=4", backward(36864)),
      "threads=544, split=8, rows_per_block=2, but no instance holds the 576 packets a block "
      "of 36864 cols so");
  // One packet on two blocks.
  EXPECT_THAT(judged("gpu_forward_ring:threads=64,split=2,stages=2", forward(8)),
              AllOf(HasSubstr("split=2"), HasSubstr("none is left for the last")));
  EXPECT_EQ(judged("gpu_forward_ring:threads=64,split=2,stages=2", forward(16)), "valid");
  // 170 packets a block are rounded up to whole lines, 176, which leaves the last fewer.
  EXPECT_EQ(judged("gpu_forward_ring:threads=192,split=8,stages=2", forward(1360 * 8)), "valid");
}

TEST(GpuValidate, LdsIsBounded) {
  EXPECT_EQ(
      judged("gpu_backward_ring:threads=416,rows_per_block=1,split=8,stages=5", backward(103008)),
      "gpu_backward_ring:threads=416,rows_per_block=1,split=8,stages=5 takes 268488 bytes of "
      "LDS a block, but sm_90 has 232448");
  EXPECT_EQ(
      judged("gpu_backward_ring:threads=416,rows_per_block=1,split=8,stages=4", backward(103008)),
      "valid");
}

TEST(GpuValidate, PartsAreRowsOfOneAlignment) {
  const char* three = "gpu_backward_sums_first:threads=256,parts=3";
  EXPECT_EQ(judged(three, backward(256)), "valid");
  EXPECT_EQ(judged(three, backward(257)),
            "parts=3, but rows aligned to 2 bytes need a multiple of 8");
  EXPECT_EQ(judged("gpu_backward_sums_first:threads=256,parts=8", backward(257)), "valid");
  EXPECT_EQ(judged(three, contiguous(Op::backward, DType::bf16, 3, 257)), "valid");
  EXPECT_EQ(judged(three, contiguous(Op::backward, DType::bf16, 2, 257)),
            "parts=3, but there are only 2 rows");
}

TEST(GpuValidate, NothingIsRefusedWhereNothingRuns) {
  EXPECT_EQ(judged("gpu_forward_row:threads=96,stages=1", contiguous(Op::forward, DType::f16, 0, 9),
                   "MI300X"),
            "valid");
  EXPECT_EQ(judged("gpu_forward_wave:threads=64,rows_per_block=64",
                   problem(Op::forward, DType::f64, 0, INT64_MAX)),
            "valid");
}

TEST(GpuValidate, AFieldBeyondItsLimitsIsRefusedByName) {
  int refused = 0, count = 0;
  test::for_each_problem(500, [&](const Problem& p) {
    const Device& device = test::gpus()[++count % test::gpus().size()];
    const Config valid = default_config(p, device);
    for (const ConfigField& field : kConfigFields) {
      const Limits limits = info(valid.variant).*field.limits;
      for (int value : {limits.low - 1, limits.high + 1, -2147483647 - 1, 2147483647}) {
        Config config = valid;
        config.*field.value = value;
        const auto reason = validate(config, p, device);
        ASSERT_TRUE(reason) << to_string(config) << ' ' << field.name << '=' << value;
        EXPECT_THAT(*reason, HasSubstr(std::string(field.name) + '=' + std::to_string(value)));
        ++refused;
      }
    }
  });
  EXPECT_GT(refused, 10000);
}

// Any value that the limits allow is judged without harm.
TEST(GpuValidate, RandomConfigsAreJudged) {
  std::mt19937_64 random(11);
  int valid = 0;
  for (int i = 0; i < 200000; ++i) {
    Config config{.variant = static_cast<Variant>(random() % variants().size())};
    for (const ConfigField& field : kConfigFields) {
      const Limits limits = info(config.variant).*field.limits;
      config.*field.value =
          limits.low +
          static_cast<int>(random() % static_cast<unsigned>(limits.high - limits.low + 1));
      if (field.name == "threads") config.threads = config.threads / 32 * 32;
    }
    const Device& device = test::gpus()[random() % test::gpus().size()];
    const Problem p = test::random_problem(random);
    if (validate(config, p, device)) continue;
    ++valid;
    const Plan sizes = plan(config, p, device);
    ASSERT_EQ(sizes.tasks > 0, has_work(p)) << to_string(config) << to_string(p);
    ASSERT_GE(predict(config, p, device).seconds, 0);
  }
  EXPECT_GT(valid, 2000);
}

}  // namespace
}  // namespace hipnorm
