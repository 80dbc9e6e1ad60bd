#include "bench/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <optional>
#include <tuple>
#include <utility>

namespace hipnorm::bench {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;
using Forward = Three(const at::Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
                      const OptionalTensor&, double);
using Backward = Three(const at::Tensor&, const at::Tensor&, c10::SymIntArrayRef, const at::Tensor&,
                       const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
                       std::array<bool, 3>);

constexpr std::array<bool, 3> kAllGradients = {true, true, true};

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

Outputs to_array(Three&& three) {
  return {std::move(std::get<0>(three)), std::move(std::get<1>(three)),
          std::move(std::get<2>(three))};
}

}  // namespace

Outputs hipnorm_forward(const Inputs& inputs) {
  static const auto op = find("hipnorm::layer_norm_forward").typed<Forward>();
  const c10::SymInt cols = inputs.shape.cols;
  return to_array(op.call(inputs.x, {cols}, inputs.weight, inputs.bias, kEps));
}

Outputs hipnorm_backward(const Inputs& inputs, const Statistics& statistics) {
  static const auto op = find("hipnorm::layer_norm_backward").typed<Backward>();
  const c10::SymInt cols = inputs.shape.cols;
  return to_array(op.call(inputs.dy, inputs.x, {cols}, statistics.mean, statistics.rstd,
                          inputs.weight, inputs.bias, kAllGradients));
}

Outputs aten_forward(const Inputs& inputs) {
  const c10::SymInt cols = inputs.shape.cols;
  return to_array(at::native_layer_norm_symint(inputs.x, {cols}, inputs.weight, inputs.bias, kEps));
}

Outputs aten_backward(const Inputs& inputs, const Statistics& statistics) {
  const c10::SymInt cols = inputs.shape.cols;
  return to_array(at::native_layer_norm_backward_symint(inputs.dy, inputs.x, {cols},
                                                        statistics.mean, statistics.rstd,
                                                        inputs.weight, inputs.bias, kAllGradients));
}

void limit(const Inputs& inputs, Direction direction, at::Tensor& out) {
  if (direction == Direction::forward) {
    out.copy_(inputs.x);
  } else {
    at::add_out(out, inputs.x, inputs.dy);
  }
}

Selected selected_config(const Inputs& inputs, Direction direction) {
  torch::jit::Stack stack;
  stack.emplace_back(std::string(to_string(direction)));
  stack.emplace_back(inputs.x);
  stack.emplace_back(std::vector<std::int64_t>{inputs.shape.cols});
  stack.emplace_back(inputs.weight);
  stack.emplace_back(inputs.bias);
  stack.emplace_back(c10::List<bool>({true, true, true}));
  find("hipnorm::selected_config").callBoxed(stack);
  const std::string text = stack.at(0).toStringRef();
  constexpr std::string_view kMark = "source=";
  const std::size_t mark = text.find(kMark);
  if (mark == std::string::npos) return {text, ""};
  const std::size_t end = text.find_last_not_of(' ', mark - 1) + 1;
  return {text.substr(0, end), text.substr(mark + kMark.size())};
}

}  // namespace hipnorm::bench
