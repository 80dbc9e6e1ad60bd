#include "tests/operators/device.h"

#include <cstdlib>
#include <string_view>

namespace hipnorm::testing {

bool on_gpu() {
  static const bool value = [] {
    const char* device = std::getenv("HIPNORM_TEST_DEVICE");
    return device != nullptr && std::string_view(device) == "cuda";
  }();
  return value;
}

at::Tensor to_test_device(const at::Tensor& tensor) {
  if (!on_gpu() || !tensor.defined() || !tensor.is_cpu()) return tensor;
  // Everything from the storage's start, so that alignment and gaps come along.
  std::int64_t extent = tensor.storage_offset();
  if (tensor.numel() > 0) {
    extent += 1;
    for (std::int64_t i = 0; i < tensor.dim(); ++i)
      extent += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return tensor.as_strided({extent}, {1}, 0)
      .to(at::kCUDA)
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

std::optional<at::Tensor> to_test_device(const std::optional<at::Tensor>& tensor) {
  return tensor ? std::optional(to_test_device(*tensor)) : std::nullopt;
}

at::Tensor from_test_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() ? tensor.cpu() : tensor;
}

}  // namespace hipnorm::testing
