// Checks of shapes, dtypes and devices, for concrete and symbolic sizes alike: the backends and the
// Meta kernels call the same ones, so that tracing refuses what running refuses.
//
// All throw c10::Error with what was expected and what came. Nothing is allocated before they pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>

namespace hipnorm {

// An absent weight or bias reaches C++ as nullopt or as an undefined tensor.
inline bool present(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

// dtype of mean, rstd and all sums: float32, float64 for float64 input.
inline at::ScalarType accumulate_dtype(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
}

// input: any shape [*, normalized_shape]; weight, bias: normalized_shape. Returns M, the number of
// rows.
c10::SymInt check_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                          const std::optional<at::Tensor>& weight,
                          const std::optional<at::Tensor>& bias);

// As check_forward, and: grad_output has input's shape and dtype; mean and rstd hold M elements of
// the accumulate dtype or of input's.
c10::SymInt check_backward(const at::Tensor& grad_output, const at::Tensor& input,
                           c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                           const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias);

// As check_backward, and: grad_dx, a gradient of the result dX, has input's shape and dtype;
// grad_dweight and grad_dbias are as weight and bias. Messages have the schema's names for them.
c10::SymInt check_double_backward(const std::optional<at::Tensor>& grad_dx,
                                  const std::optional<at::Tensor>& grad_dweight,
                                  const std::optional<at::Tensor>& grad_dbias,
                                  const at::Tensor& grad_output, const at::Tensor& input,
                                  c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                  const at::Tensor& rstd, const std::optional<at::Tensor>& weight);

}  // namespace hipnorm
