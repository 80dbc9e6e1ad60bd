#include "tests/operators/by_name.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "tests/operators/device.h"

namespace hipnorm::testing {
namespace {

template <class T>
T moved(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, MaybeTensor>) {
    return to_test_device(argument);
  } else {
    return argument;
  }
}

template <class... Arguments>
torch::jit::Stack call(const std::string& op, const Arguments&... arguments) {
  torch::jit::Stack stack;
  (stack.emplace_back(moved(arguments)), ...);
  c10::Dispatcher::singleton().findSchemaOrThrow(("hipnorm::" + op).c_str(), "").callBoxed(&stack);
  return stack;
}

Tensors3 three_tensors(const torch::jit::Stack& stack) {
  TORCH_CHECK(stack.size() == 3, "expected 3 results, got ", stack.size());
  return {from_test_device(stack[0].toTensor()), from_test_device(stack[1].toTensor()),
          from_test_device(stack[2].toTensor())};
}

c10::List<bool> list_of(Mask mask) { return {mask[0], mask[1], mask[2]}; }

}  // namespace

at::Tensor call_layer_norm(const at::Tensor& input, const Shape& normalized_shape,
                           const MaybeTensor& weight, const MaybeTensor& bias, double eps) {
  const auto results = call("layer_norm", input, normalized_shape, weight, bias, eps);
  TORCH_CHECK(results.size() == 1, "expected 1 result, got ", results.size());
  return from_test_device(results[0].toTensor());
}

Tensors3 call_forward(const at::Tensor& input, const Shape& normalized_shape,
                      const MaybeTensor& weight, const MaybeTensor& bias, double eps) {
  return three_tensors(call("layer_norm_forward", input, normalized_shape, weight, bias, eps));
}

Tensors3 call_backward(const std::string& op, const at::Tensor& grad_output,
                       const at::Tensor& input, const Shape& normalized_shape,
                       const at::Tensor& mean, const at::Tensor& rstd, const MaybeTensor& weight,
                       const MaybeTensor& bias, Mask output_mask) {
  return three_tensors(call(op, grad_output, input, normalized_shape, mean, rstd, weight, bias,
                            list_of(output_mask)));
}

std::string call_selected_config(const std::string& op, const at::Tensor& input,
                                 const Shape& normalized_shape, const MaybeTensor& weight,
                                 const MaybeTensor& bias, Mask output_mask) {
  const auto results =
      call("selected_config", op, input, normalized_shape, weight, bias, list_of(output_mask));
  return results.at(0).toStringRef();
}

}  // namespace hipnorm::testing
