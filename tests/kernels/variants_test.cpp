// That every variant of the device's kind is run at all: a test over the valid configs of a variant
// that has none passes without having tested anything.
#include <gtest/gtest.h>

#include "tests/kernels/configs.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

TEST(Variants, EachIsRun) {
  std::vector<Kernel> kernels = forward_kernels();
  for (const Kernel& kernel : backward_kernels()) kernels.push_back(kernel);
  ASSERT_FALSE(kernels.empty());
  for (const Kernel& kernel : kernels) {
    // The rings need the copy engine that fills them, and are not made for f64; nor are groups.
    const bool ring =
        kernel.variant == Variant::gpu_forward_ring || kernel.variant == Variant::gpu_backward_ring;
    const bool group = kernel.variant == Variant::gpu_backward_group;
    std::size_t shapes = 0, configs = 0;
    for (const std::span<const Shape> list : {small_shapes(), large_shapes(), packet_shapes()}) {
      for (const Shape shape : list) {
        const LayerData data(shape.rows, shape.cols, kernel.x, kernel.weight);
        const std::size_t count =
            configs_for(kernel.variant, data.problem(kernel.op, {}, kAllGrads), Effort::many)
                .size();
        configs += count;
        shapes += count > 0;
      }
    }
    if ((ring && !device().bulk_copies) || ((ring || group) && kernel.x == DType::f64)) {
      EXPECT_EQ(shapes, 0u) << name_of(kernel);
      continue;
    }
    EXPECT_GE(shapes, 3u) << name_of(kernel);
    EXPECT_GE(configs, 6u) << name_of(kernel);
  }
}

}  // namespace
}  // namespace hipnorm::testing
