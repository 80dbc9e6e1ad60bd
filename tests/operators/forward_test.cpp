// Forward: shapes, dtypes and strides as at::native_layer_norm gives them, values as they should
// be.
#include <gtest/gtest.h>

#include "tests/operators/check.h"

namespace hipnorm::testing {
namespace {

struct Dims {
  Shape sizes;
  std::int64_t normalized;
};
const std::vector<Dims> kDims = {
    {{7}, 1},            // no leading dimension: one row
    {{3, 769}, 1},       // the ordinary case, an odd width
    {{2, 3, 5}, 1},      // leading dimensions collapse
    {{2, 3, 5}, 2},      // normalised dimensions collapse
    {{2, 3, 5}, 3},      // no leading dimension, three normalised
    {{4, 1, 2, 33}, 1},  // ones among the leading dimensions
    {{4, 1, 1}, 2},      // N = 1
    {{1, 1}, 1},         // one element
};

TEST(OperatorForward, ShapesAndDTypesFollowNativeLayerNorm) {
  for (const Dims& dims : kDims) {
    for (const at::ScalarType dtype : kDTypes) {
      for (const at::ScalarType parameters : {dtype, accumulate_dtype(dtype)}) {
        Call call = make_call(dims.sizes, dims.normalized, dtype, parameters);
        SCOPED_TRACE(
            c10::str(call.input.toString(), call.input.sizes(), " over ", dims.normalized));
        for (const bool weight : {true, false}) {
          for (const bool bias : {true, false}) {
            Call some = call;
            if (!weight) some.weight.reset();
            if (!bias) some.bias.reset();
            const auto [y, mean, rstd] = run_forward(some);
            const auto [y_aten, mean_aten, rstd_aten] = at::native_layer_norm(
                some.input, some.normalized_shape(), some.weight, some.bias, some.eps);
            EXPECT_EQ(y.sizes(), y_aten.sizes());
            EXPECT_EQ(y.strides(), y_aten.strides());
            EXPECT_EQ(y.scalar_type(), y_aten.scalar_type());
            for (const at::Tensor& statistic : std::vector{mean, rstd}) {
              EXPECT_EQ(statistic.sizes(), mean_aten.sizes());
              EXPECT_EQ(statistic.strides(), mean_aten.strides());
              EXPECT_EQ(statistic.scalar_type(), accumulate_dtype(dtype));
            }
            expect_right(some);
          }
        }
      }
    }
  }
}

TEST(OperatorForward, EmptyInputs) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Dims& dims : {Dims{{0, 5}, 1}, Dims{{3, 0}, 1}, Dims{{2, 0, 4}, 1}, Dims{{0, 0}, 1},
                             Dims{{2, 0, 4}, 2}, Dims{{0}, 1}}) {
      const Call call = make_call(dims.sizes, dims.normalized, dtype, dtype);
      SCOPED_TRACE(c10::str(call.input.toString(), call.input.sizes(), " over ", dims.normalized));
      const Tensors3 ours = run_forward(call);
      const auto aten = at::native_layer_norm(call.input, call.normalized_shape(), call.weight,
                                              call.bias, call.eps);
      const at::ScalarType saved = accumulate_dtype(dtype);
      EXPECT_TRUE(identical(
          ours, {std::get<0>(aten), std::get<1>(aten).to(saved), std::get<2>(aten).to(saved)}));
    }
  }
}

TEST(OperatorForward, UndefinedTensorsStandForNone) {
  Call call = make_call({4, 9});
  call.weight = at::Tensor();
  call.bias = at::Tensor();
  const Tensors3 undefined = run_forward(call);
  call.weight.reset();
  call.bias.reset();
  EXPECT_TRUE(identical(undefined, run_forward(call)));
}

TEST(OperatorForward, EpsIsInsideTheRoot) {
  for (const double eps : {0.0, 1e-12, 1e-3, 1.0, 100.0}) {
    Call call = make_call({5, 40});
    call.eps = eps;
    expect_right(call);
  }
}

TEST(OperatorForward, WideRows) {
  for (const at::ScalarType dtype : kDTypes) expect_right(make_call({2, 103008}, 1, dtype, dtype));
}

// Outputs are new: never a view of the input, of each other, or of memory used before.
TEST(OperatorForward, OutputsDoNotAlias) {
  const Call call = make_call({3, 64});
  const auto [y, mean, rstd] = run_forward(call);
  EXPECT_NE(y.const_data_ptr(), call.input.const_data_ptr());
  EXPECT_FALSE(mean.is_alias_of(rstd));
  EXPECT_FALSE(y.is_alias_of(call.input));
  const at::Tensor before = call.input.clone();
  y.fill_(7);
  EXPECT_TRUE(identical(call.input, before));
}

}  // namespace
}  // namespace hipnorm::testing
