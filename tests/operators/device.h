// The device that the operators are called on: the CPU, or with HIPNORM_TEST_DEVICE=cuda the first
// GPU. The tests themselves make and judge tensors on the CPU.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace hipnorm::testing {

bool on_gpu();

// The tensor on that device with the sizes, strides and offset that it has; tensors that are not on
// the CPU (meta) as they are.
at::Tensor to_test_device(const at::Tensor& tensor);
std::optional<at::Tensor> to_test_device(const std::optional<at::Tensor>& tensor);
at::Tensor from_test_device(const at::Tensor& tensor);

}  // namespace hipnorm::testing
