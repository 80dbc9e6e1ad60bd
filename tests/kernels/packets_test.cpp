// forward_row and backward_row where rows are whole packets of 16 bytes, which AMD has kernels of
// its own for: every instance, tails of a packet, several rows a block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "kernels/gpu/instances.h"
#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

std::vector<Kernel> row_kernels() {
  std::vector<Kernel> list = forward_kernels();
  for (const Kernel& kernel : backward_kernels()) list.push_back(kernel);
  std::erase_if(list, [](const Kernel& k) {
    return k.x == DType::f64 ||
           (k.variant != Variant::gpu_forward_row && k.variant != Variant::gpu_backward_row);
  });
  return list;
}

class Packets : public ::testing::TestWithParam<Kernel> {
 protected:
  const Kernel kernel = GetParam();

  // With the next row under way; returns the packets in each lane, 0 where it does not fit.
  int check(LayerData& data, int threads, Affine affine = {}, GradMask grads = kAllGrads) const {
    Config config{.variant = kernel.variant, .threads = threads};
    config.stages = 2;
    const bool forward = kernel.op == Op::forward;
    const Problem problem = data.problem(kernel.op, affine, forward ? GradMask{} : grads);
    if (validate(config, problem, device())) return 0;
    if (forward) {
      check_forward(data, affine, std::span(&config, 1));
    } else {
      if (data.mean.count() == 0) data.save_statistics();
      check_backward(kernel.op, data, affine, grads, std::span(&config, 1));
    }
    return plan(config, problem, device()).vectors;
  }
  LayerData make(std::int64_t rows, std::int64_t cols, Layout layout = Layout::dense) const {
    return LayerData(rows, cols, kernel.x, kernel.weight, layout);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Packets, ::testing::ValuesIn(row_kernels()),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Packets, EveryInstance) {
  std::vector<int> seen;
  for (const std::int64_t cols : {8, 256, 504, 520, 1024, 1280, 1536, 2040, 2304, 2560, 3072, 4096,
                                  4608, 5112, 6656, 8192, 10240, 13312}) {
    LayerData data = make(13, cols, cols % 512 == 0 ? Layout::aligned_gap : Layout::dense);
    seen.push_back(check(data, 64));
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  std::erase(seen, 0);
  const Problem problem = make(13, 8).problem(kernel.op, {}, kAllGrads);
  if (!gpu::takes_packets(problem, 2, gpu::is_amd(device()))) {
    EXPECT_GE(seen.size(), 2u);
  } else if (kernel.op == Op::forward) {
    EXPECT_EQ(seen.size(), std::size(gpu::kForwardPackets)) << "an instance was not run";
  } else {
    EXPECT_GE(seen.size(), 5u);
  }
}

TEST_P(Packets, MasksAndAbsentParameters) {
  for (const int threads : {64, 192}) {
    LayerData data = make(17, 1000);
    EXPECT_GT(check(data, threads, {false, true}), 0);
    check(data, threads, {true, false});
    check(data, threads, {false, false}, {.dx = true});
    if (kernel.op == Op::forward) continue;
    for (const GradMask grads : kAllGradMasks) check(data, threads, {}, grads);
  }
}

// Parameters of any alignment, too, though rows are aligned.
TEST_P(Packets, UnalignedParameters) {
  LayerData data = make(5, 1000);
  for (Array* parameter : {&data.weight, &data.bias}) {
    Array moved(kernel.weight, data.cols, size_of(kernel.weight));
    for (std::int64_t i = 0; i < data.cols; ++i) moved.set(i, (*parameter)[i]);
    *parameter = std::move(moved);
    EXPECT_GT(check(data, 64), 0);
  }
}

TEST_P(Packets, NanAndExtremeRowsAreAlone) {
  LayerData data = make(13, 1024);
  for (std::int64_t c = 0; c < data.cols; ++c) {
    data.set_x(2, c, 7);                                                   // constant
    data.set_x(5, c, kernel.x == DType::f16 ? 6e4 : c % 2 ? 2e38 : 1e38);  // the variance overflows
  }
  data.set_x(8, 1023, std::nan(""));
  data.set_x(9, 0, INFINITY);
  EXPECT_GT(check(data, 64), 0);
}

// gfx950: 7, 9 and 10 packets a lane, weights and most of x in LDS.
TEST_P(Packets, PartOfTheRowInLds) {
  if (kernel.op == Op::forward || kernel.x == DType::f32) GTEST_SKIP() << "has all in registers";
  if (!gpu::is_amd(device()) || device().lds_bytes < (160 << 10))
    GTEST_SKIP() << device().arch << " has too little LDS";
  const bool wide = kernel.weight != kernel.x;
  for (const std::int64_t cols : {28672, 36864, 40920}) {
    LayerData data = make(7, cols);
    const int vectors = check(data, gpu::kThreadsWithLds);
    EXPECT_EQ(vectors, cols == 28672 ? 7 : wide ? 0 : cols == 36864 ? 9 : 10) << cols;
  }
  LayerData narrow = make(7, 20488);  // beside two empty packets
  EXPECT_EQ(check(narrow, gpu::kThreadsWithLds, {}, {true, false, true}), 7);
}

}  // namespace
}  // namespace hipnorm::testing
