// Backward: the three operators, every mask, missing parameters, statistics of either dtype.
#include <gtest/gtest.h>

#include "tests/operators/check.h"

namespace hipnorm::testing {
namespace {

at::Tensor random_like(const at::Tensor& tensor) {
  return at::randn(tensor.sizes(), at::kDouble).to(tensor.scalar_type());
}

TEST(OperatorBackward, EveryMaskAndMissingParameter) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const at::ScalarType parameters : {dtype, accumulate_dtype(dtype)}) {
      for (int bits = 0; bits < 32; ++bits) {
        const Mask mask = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        Call call = make_call({5, 131}, 1, dtype, parameters);
        if ((bits & 8) != 0) call.weight.reset();
        if ((bits & 16) != 0) call.bias.reset();
        const at::Tensor grad = random_like(call.input);
        for (const std::string& op : kBackwardOps) {
          SCOPED_TRACE(c10::str(op, " bits=", bits, " ", dtype, " ", parameters));
          const Tensors3 grads = run_backward(call, grad, op, mask);
          EXPECT_EQ(std::get<0>(grads).defined(), mask[0]);
          EXPECT_EQ(std::get<1>(grads).defined(), mask[1] && call.weight);
          EXPECT_EQ(std::get<2>(grads).defined(), mask[2] && call.bias);
          const auto verdict = judge(call, grad, grads);
          EXPECT_TRUE(verdict.ok()) << verdict.describe();
        }
      }
    }
  }
}

TEST(OperatorBackward, ShapesFollowInputAndParameters) {
  const Call call = make_call({2, 3, 4, 5}, 2, at::kBFloat16, at::kFloat);
  const auto [dx, dweight, dbias] = run_backward(call, random_like(call.input));
  EXPECT_EQ(dx.sizes(), call.input.sizes());
  EXPECT_EQ(dx.scalar_type(), at::kBFloat16);
  for (const at::Tensor& grad : std::vector{dweight, dbias}) {
    EXPECT_EQ(grad.sizes(), at::IntArrayRef({4, 5}));
    EXPECT_EQ(grad.scalar_type(), at::kFloat);
    EXPECT_TRUE(grad.is_contiguous());
  }
  EXPECT_FALSE(dweight.is_alias_of(dbias));
}

// No rows: dW = dB = 0. No columns: empty gradients.
TEST(OperatorBackward, EmptyInputs) {
  for (const std::string& op : kBackwardOps) {
    for (const at::ScalarType dtype : kDTypes) {
      const Call no_rows = make_call({0, 5}, 1, dtype, dtype);
      const auto [dx, dweight, dbias] = run_backward(no_rows, random_like(no_rows.input), op);
      EXPECT_EQ(dx.sizes(), no_rows.input.sizes());
      EXPECT_TRUE(identical(dweight, at::zeros({5}, dtype)));
      EXPECT_TRUE(identical(dbias, at::zeros({5}, dtype)));
      const Call no_cols = make_call({3, 0}, 1, dtype, dtype);
      const auto grads = run_backward(no_cols, random_like(no_cols.input), op);
      EXPECT_EQ(std::get<0>(grads).sizes(), no_cols.input.sizes());
      EXPECT_EQ(std::get<1>(grads).sizes(), at::IntArrayRef({0}));
      EXPECT_EQ(std::get<2>(grads).sizes(), at::IntArrayRef({0}));
    }
  }
}

// mean and rstd are taken in f32 or in the input's dtype (what at::native_layer_norm saves), in any
// shape of M elements.
TEST(OperatorBackward, StatisticsOfEitherDTypeAndAnyShape) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Call call = make_call({3, 4, 64}, 1, dtype, dtype);
    const at::Tensor grad = random_like(call.input);
    const auto forward = run_forward(call);
    const at::Tensor mean = std::get<1>(forward).to(dtype), rstd = std::get<2>(forward).to(dtype);
    for (const std::string& op : kBackwardOps) {
      const auto narrow =
          call_backward(op, grad, call.input, {64}, mean, rstd, call.weight, call.bias);
      EXPECT_TRUE(identical(narrow, call_backward(op, grad, call.input, {64}, mean.to(at::kFloat),
                                                  rstd.to(at::kFloat), call.weight, call.bias)));
      EXPECT_TRUE(identical(narrow, call_backward(op, grad, call.input, {64}, mean.flatten(),
                                                  rstd.reshape({4, 3}), call.weight, call.bias)));
    }
  }
}

TEST(OperatorBackward, WideRows) {
  for (const at::ScalarType dtype : kDTypes) expect_right(make_call({3, 40920}, 1, dtype, dtype));
}

// Integers, bit for bit: a row that is left out or counted twice cannot hide. (As for the kernels,
// here with the configs that dispatch chooses: rows are half +1 and half −1, eps = 0.)
TEST(OperatorBackward, ColumnSumsAreExact) {
  for (const std::int64_t rows : {1, 63, 1025, 70001}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Call call = make_call({rows, 34}, 1, dtype, at::kFloat);
      const at::Tensor signs = at::randint(0, 2, {rows, 17}, at::kFloat).mul_(2).sub_(1);
      call.input = at::cat({signs, signs.neg()}, 1).to(dtype);
      call.eps = 0;
      const at::Tensor grad = at::randint(-1, 2, {rows, 34}, at::kFloat).to(dtype);
      for (const std::string& op : kBackwardOps) {
        SCOPED_TRACE(c10::str(op, " ", rows, " ", dtype));
        const auto [dx, dweight, dbias] = run_backward(call, grad, op);
        const at::Tensor wide = grad.to(at::kLong);
        EXPECT_TRUE(at::equal(dbias.to(at::kLong), wide.sum(0)));
        EXPECT_TRUE(at::equal(dbias, dbias.round()));
        EXPECT_TRUE(at::equal(dweight.to(at::kLong), (wide * call.input.to(at::kLong)).sum(0)));
        EXPECT_TRUE(at::equal(dweight, dweight.round()));
      }
    }
  }
}

}  // namespace
}  // namespace hipnorm::testing
