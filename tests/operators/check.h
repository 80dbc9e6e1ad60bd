// Tensors against the fp64 reference.
#pragma once

#include "tests/operators/by_name.h"
#include "tests/reference/judge.h"

namespace hipnorm::testing {

// One call's inputs. `normalized_dims` trailing dimensions of input are normalised over.
struct Call {
  at::Tensor input;
  std::int64_t normalized_dims = 1;
  MaybeTensor weight;
  MaybeTensor bias;
  double eps = 1e-5;

  Shape normalized_shape() const;
  std::int64_t cols() const;
  std::int64_t rows() const;
};
// −2.3 + 0.5·randn of `sizes`, weight and bias randn of `parameters` dtype.
Call make_call(const Shape& sizes, std::int64_t normalized_dims = 1,
               at::ScalarType input = at::kFloat, at::ScalarType parameters = at::kFloat);

Tensors3 run_forward(const Call& call);
// By the mean and rstd of its own forward.
Tensors3 run_backward(const Call& call, const at::Tensor& grad_output,
                      const std::string& op = "layer_norm_backward", Mask mask = kAllGrads);

// (y, mean, rstd), and (dX, dW, dB) from a mean and rstd that some forward saved. Undefined tensors
// are not judged.
reference::ForwardVerdict judge(const Call& call, const Tensors3& results);
reference::BackwardVerdict judge(const Call& call, const at::Tensor& grad_output,
                                 const Tensors3& results);

// Forward and all three backward operators of one call are right; dtypes and shapes included.
void expect_right(const Call& call, const at::Tensor& grad_output);
void expect_right(const Call& call);  // grad_output: randn

// Same dtype, shape and values bit for bit (−0 is not 0, but any NaN is any other), or both
// undefined.
bool identical(const at::Tensor& a, const at::Tensor& b);
bool identical(const Tensors3& a, const Tensors3& b);

inline const std::array<at::ScalarType, 4> kDTypes = {at::kFloat, at::kBFloat16, at::kHalf,
                                                      at::kDouble};
inline at::ScalarType accumulate_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace hipnorm::testing
