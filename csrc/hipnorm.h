// The public C++ interface of hipnorm: LayerNorm as typed functions.
//
// Every function goes through PyTorch's dispatcher, exactly as torch.ops.hipnorm.* does from
// Python: autograd, autocast, torch.func and tracing apply. Errors are c10::Error.
//
// To link, with CMake: find_package(hipnorm) and target_link_libraries(app hipnorm::hipnorm); by
// hand: libhipnorm.so and torch's libtorch, libtorch_cpu and libc10. A program that reaches the
// operators only by name (c10::Dispatcher, TorchScript) references no symbol of the library, and
// the linker then drops it: link with -Wl,--no-as-needed (the CMake target does), or dlopen it.
//
// The library works with the torch it was built for, to the minor version. Under another one every
// operator refuses with a message that names both versions; where torch's C++ symbols changed too
// (2.11 and 2.13 differ in torch::autograd::Node), the dynamic loader refuses first: "undefined
// symbol: …torch…" on loading means exactly this mismatch, and a rebuild is the remedy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#define HIPNORM_API __attribute__((visibility("default")))

namespace hipnorm {

using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// In all functions below: M is the product of input's leading dimensions, N that of
// normalized_shape, which must equal input's last dimensions. input: float32, float16, bfloat16 or
// float64, any strides. weight and bias: shape normalized_shape, each optional, of input's dtype or
// float32 (float64 for float64 input), of one dtype when both are given. "accumulate dtype":
// float32, or float64 for float64 input. All on one device. Outputs are contiguous.

// y = (x − mean)·rstd·weight + bias over the last dimensions, mean = Σx/N, rstd = 1/√(var + eps).
// Returns y: input's shape and dtype. Differentiable twice; a third derivative raises.
HIPNORM_API at::Tensor layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                  const std::optional<at::Tensor>& weight = std::nullopt,
                                  const std::optional<at::Tensor>& bias = std::nullopt,
                                  double eps = 1e-5);
HIPNORM_API at::Tensor layer_norm_symint(const at::Tensor& input,
                                         c10::SymIntArrayRef normalized_shape,
                                         const std::optional<at::Tensor>& weight = std::nullopt,
                                         const std::optional<at::Tensor>& bias = std::nullopt,
                                         double eps = 1e-5);

// Returns (y, mean, rstd). mean and rstd: input's leading dimensions followed by ones, accumulate
// dtype (at::native_layer_norm gives them in input's on the CPU). No gradient flows back from them;
// in forward mode they have tangents.
HIPNORM_API Tensors3 layer_norm_forward(const at::Tensor& input, at::IntArrayRef normalized_shape,
                                        const std::optional<at::Tensor>& weight = std::nullopt,
                                        const std::optional<at::Tensor>& bias = std::nullopt,
                                        double eps = 1e-5);
HIPNORM_API Tensors3
layer_norm_forward_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                          const std::optional<at::Tensor>& weight = std::nullopt,
                          const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

// Returns (dX, dW, dB) in the shapes and dtypes of input, weight and bias. A gradient that
// output_mask excludes, or whose weight or bias is absent, is an undefined tensor. grad_output:
// shape and dtype of input, any strides. mean, rstd: M elements, accumulate dtype or input's.
// Differentiable once, with mean and rstd taken as functions of input.
// The first chooses the algorithm from the shape; the other two fix it.
HIPNORM_API Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                         at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                         const at::Tensor& rstd,
                                         const std::optional<at::Tensor>& weight,
                                         const std::optional<at::Tensor>& bias,
                                         std::array<bool, 3> output_mask = {true, true, true});
HIPNORM_API Tensors3 layer_norm_backward_fused(
    const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask = {true, true, true});
HIPNORM_API Tensors3 layer_norm_backward_two_kernel(
    const at::Tensor& grad_output, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask = {true, true, true});

// Which kernel would run and why, for instance
// "cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=2,stream=1  source=default"; for an empty
// input, or an output_mask that asks for nothing, "none".
// op: forward, backward, backward_fused or backward_two_kernel. A backward is judged for a
// grad_output laid out as a new contiguous tensor. output_mask matters to backward ops only.
HIPNORM_API std::string selected_config(std::string_view op, const at::Tensor& input,
                                        at::IntArrayRef normalized_shape,
                                        const std::optional<at::Tensor>& weight = std::nullopt,
                                        const std::optional<at::Tensor>& bias = std::nullopt,
                                        std::array<bool, 3> output_mask = {true, true, true});

// Forces kernel configs for as long as it lives, in the whole process (autograd runs backward on
// threads of its own). `text` is what the environment variable HIPNORM_FORCE_CONFIG takes:
// "op=config;op=config", for instance "forward=cpu_forward_row:vec_bytes=32". Guards nest; the
// innermost that names an op wins. Throws std::invalid_argument on text that does not parse; a
// config that cannot run the shape makes the call throw, it is never ignored.
class HIPNORM_API ScopedForcedConfig {
 public:
  explicit ScopedForcedConfig(std::string_view text);
  ~ScopedForcedConfig();
  ScopedForcedConfig(const ScopedForcedConfig&) = delete;
  ScopedForcedConfig& operator=(const ScopedForcedConfig&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hipnorm
