// backward_group: a row on blocks that wait for each other through memory. Its rows are whole
// packets, which few shapes of the other tests are.
#include <gtest/gtest.h>

#include <cmath>

#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

constexpr Variant kGroup = Variant::gpu_backward_group;

std::vector<Kernel> group_kernels() {
  std::vector<Kernel> list = backward_kernels();
  std::erase_if(list, [](const Kernel& k) { return k.variant != kGroup || k.x == DType::f64; });
  return list;
}

class Group : public ::testing::TestWithParam<Kernel> {
 protected:
  const Kernel kernel = GetParam();
  void SetUp() override {
    if (!device().cooperative) GTEST_SKIP() << device().arch << " has no cooperative launches";
  }
  LayerData make(Shape shape, Layout layout = Layout::dense) const {
    LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight, layout);
    data.save_statistics();
    return data;
  }
  std::vector<BackwardResult> check(const LayerData& data, Affine affine, GradMask grads,
                                    Effort effort) const {
    return check_backward(kernel.op, data, affine, grads,
                          configs_for(kGroup, data.problem(kernel.op, affine, grads), effort));
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Group, ::testing::ValuesIn(group_kernels()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Group, ShapesAndLayouts) {
  for (const Shape shape : packet_shapes()) {
    for (const Layout layout : {Layout::dense, Layout::aligned_gap}) {
      const LayerData data = make(shape, layout);
      // Six blocks at a time, which is what the emulated device holds, of waves of 32 lanes have
      // room for rows of less than this for certain.
      const bool wide = device().wave_size == 32 && shape.cols * size_of(kernel.x) >= 8192;
      const bool some = !check(data, {}, kAllGrads, Effort::few).empty();
      EXPECT_TRUE(some || wide) << shape.cols;
      check(data, {false, true}, kAllGrads, Effort::one);
      check(data, {false, false}, {.dx = true}, Effort::one);
      check(data, {}, {false, true, true}, Effort::one);
    }
  }
}

TEST_P(Group, EveryCombinationOfParameters) {
  check(make({37, 1032}), {}, kAllGrads, Effort::many);
  check(make({5, 4104}), {}, kAllGrads, Effort::many);
}

TEST_P(Group, MasksDoNotChangeTheValues) {
  const LayerData data = make({37, 1032});
  for (const Config& config :
       configs_for(kGroup, data.problem(kernel.op, {}, kAllGrads), Effort::few)) {
    const auto full = check_backward(kernel.op, data, {}, kAllGrads, std::span(&config, 1));
    for (const GradMask grads : kAllGradMasks) {
      const auto part = check_backward(kernel.op, data, {}, grads, std::span(&config, 1));
      if (grads.dx) {
        EXPECT_TRUE(part[0].dx.same_bits(full[0].dx));
      }
      if (grads.dweight) {
        EXPECT_TRUE(part[0].dweight.same_bits(full[0].dweight));
      }
      if (grads.dbias) {
        EXPECT_TRUE(part[0].dbias.same_bits(full[0].dbias));
      }
    }
  }
}

// A row that is NaN posts NaN, which must neither be taken for an empty slot nor reach other rows.
TEST_P(Group, RowsOfNanAreAlone) {
  LayerData data(11, 1032, kernel.x, kernel.weight);
  for (const std::int64_t row : {0, 4, 10}) data.set_x(row, 7 * row + 3, std::nan(""));
  data.save_statistics();
  check(data, {}, kAllGrads, Effort::few);
  LayerData gradients = make({11, 1032});
  for (const std::int64_t row : {0, 4, 10}) gradients.set_dy(row, 100 * row, std::nan(""));
  check(gradients, {}, kAllGrads, Effort::few);
}

// A grid that the device does not hold at once is refused by the runtime, and another kernel gives
// the gradients, in the same workspace.
TEST_P(Group, ARefusedLaunchIsDoneOtherwise) {
  const LayerData data = make({emulated() ? 300 : 8192, 520});
  Config config{.variant = kGroup, .threads = 64};
  config.split = 2;
  Device larger = device();  // than the runtime knows it to be
  larger.resident_groups = [](const Config&, const Plan&, const Problem&, const Device&) {
    return 1 << 20;
  };
  for (const GradMask grads : {kAllGrads, GradMask{.dx = true}, GradMask{false, true, true}}) {
    const Problem problem = data.problem(kernel.op, {}, grads);
    ASSERT_EQ(validate(config, problem, device()), std::nullopt);
    const Plan sizes = plan(config, problem, larger);
    ASSERT_GE(sizes.tasks * sizes.threads, emulated() ? 16385 : 8192 * 64);
    const BackwardResult result = run_backward(problem, sizes, data, {}, config, 0);
    const reference::BackwardOutputs outputs = {{result.dx.dtype(), result.dx.data(), data.cols},
                                                {result.dweight.dtype(), result.dweight.data()},
                                                {result.dbias.dtype(), result.dbias.data()}};
    const auto verdicts =
        reference::judge_backward(data.backward_inputs({}), std::span(&outputs, 1));
    EXPECT_TRUE(verdicts.front().ok()) << verdicts.front().describe();
  }
}

}  // namespace
}  // namespace hipnorm::testing
