#include "csrc/dispatch/problem.h"

#include <gtest/gtest.h>

#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

TEST(Problem, OpsAndDtypesAreReadAsTheyArePrinted) {
  for (Op op : kOps) EXPECT_EQ(parse_op(to_string(op)), op);
  for (DType dtype : {DType::none, DType::f32, DType::f16, DType::bf16, DType::f64}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(to_string(Op::backward_two_kernel), "backward_two_kernel");
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  for (const char* text : {"", "Forward", "backward ", "fwd"}) EXPECT_FALSE(parse_op(text)) << text;
  for (const char* text : {"", "F32", "float", "bf16 "}) EXPECT_FALSE(parse_dtype(text)) << text;
}

TEST(Problem, IsPrintedWithWhatItHas) {
  Problem p = test::problem(Op::backward, DType::bf16, 2304, 36864);
  p.weight = DType::f32;
  EXPECT_EQ(to_string(p),
            "backward bf16 2304x36864 weight=f32 bias grads=dx,dweight,dbias alignment=64");
  p.has_weight = false;
  p.grads = {false, false, true};
  p.alignment = 2;
  EXPECT_EQ(to_string(p), "backward bf16 2304x36864 bias=f32 grads=dbias alignment=2");
  p.has_bias = false;
  p.grads = {};
  EXPECT_EQ(to_string(p), "backward bf16 2304x36864 grads=none alignment=2");
  p = test::problem(Op::forward, DType::f64, 0, 1);
  p.has_bias = false;
  EXPECT_EQ(to_string(p), "forward f64 0x1 weight=f64 alignment=64");
}

}  // namespace
}  // namespace hipnorm
