// Nodes, not torch::autograd::Function: a C++ Function is refused by torch.func's transforms. A
// Node sees every level of transforms, because all it calls are operators.
#include "csrc/autograd.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>

#include "csrc/checks.h"
#include "csrc/composite.h"
#include "csrc/node_ptr.h"
#include "csrc/operators.h"

namespace hipnorm::autograd {
namespace {

using torch::autograd::collect_next_edges;
using torch::autograd::compute_requires_grad;
using torch::autograd::isFwGradDefined;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::set_history;
using torch::autograd::variable_list;

constexpr const char* kThirdDerivative =
    "hipnorm: layer_norm is differentiable twice, but a third derivative was asked for; "
    "torch.nn.functional.layer_norm has all of them";

std::optional<at::Tensor> optional_of(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

// The graph of layer_norm and of layer_norm_forward. Gradient in: of output. Gradients out: of
// input, weight and bias.
struct LayerNormBackward final : Node {
  SavedVariable input, mean, rstd, weight, bias;
  c10::SymDimVector normalized_shape;

  std::string name() const override { return "HipnormLayerNormBackward"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard lock(mutex_);
    variable_list result(3);
    const std::array<bool, 3> mask = {task_should_compute_output(0), task_should_compute_output(1),
                                      task_should_compute_output(2)};
    if (!grads[0].defined() || !(mask[0] || mask[1] || mask[2])) return result;
    std::tie(result[0], result[1], result[2]) = layer_norm_backward_symint(
        Op::backward, grads[0], input.unpack(), normalized_shape, mean.unpack(), rstd.unpack(),
        optional_of(weight.unpack()), optional_of(bias.unpack()), mask);
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable* saved : {&input, &mean, &rstd, &weight, &bias}) saved->reset_data();
  }
};

// The graph of the three backward operators. Gradients in: of dX, dW and dB. Gradients out: of
// grad_output, input and weight.
struct LayerNormDoubleBackward final : Node {
  SavedVariable grad_output, input, mean, rstd, weight;
  c10::SymDimVector normalized_shape;

  std::string name() const override { return "HipnormLayerNormBackwardBackward"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard lock(mutex_);
    variable_list result(3);
    const std::array<bool, 3> mask = {task_should_compute_output(0), task_should_compute_output(1),
                                      task_should_compute_output(2)};
    const bool any_grad = grads[0].defined() || grads[1].defined() || grads[2].defined();
    if (!any_grad || !(mask[0] || mask[1] || mask[2])) return result;
    std::tie(result[0], result[1], result[2]) = hipnorm::layer_norm_double_backward(
        optional_of(grads[0]), optional_of(grads[1]), optional_of(grads[2]), grad_output.unpack(),
        input.unpack(), normalized_shape, mean.unpack(), rstd.unpack(),
        optional_of(weight.unpack()), mask);
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable* saved : {&grad_output, &input, &mean, &rstd, &weight}) {
      saved->reset_data();
    }
  }
};

bool any_tangent(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                 const std::optional<at::Tensor>& bias) {
  return isFwGradDefined(input) || isFwGradDefined(weight) || isFwGradDefined(bias);
}

// As torch's own operators do: the result is computed from the primals and gets its tangent after.
void set_tangents(const Tensors3& results, const Tensors3& tangents) {
  const auto set = [](const at::Tensor& result, const at::Tensor& tangent) {
    if (!result.defined() || !tangent.defined()) return;
    result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
  };
  set(std::get<0>(results), std::get<0>(tangents));
  set(std::get<1>(results), std::get<1>(tangents));
  set(std::get<2>(results), std::get<2>(tangents));
}

// The forward where a derivative is wanted: with its graph, its tangents, or both.
Tensors3 differentiable_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                const std::optional<at::Tensor>& weight,
                                const std::optional<at::Tensor>& bias, double eps,
                                bool statistics_returned) {
  Tensors3 result = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return layer_norm_forward_symint(input, normalized_shape, weight, bias, eps);
  }();
  const auto& [output, mean, rstd] = result;
  if (compute_requires_grad(input, weight, bias)) {
    const auto node = make_node<LayerNormBackward>();
    node->set_next_edges(collect_next_edges(input, weight, bias));
    // Tangents are saved along: a backward inside the same forward-mode level carries them on.
    node->input = SavedVariable(input, /*is_output=*/false);
    node->mean = SavedVariable(mean, /*is_output=*/false);  // no gradient reaches it: as an input
    node->rstd = SavedVariable(rstd, /*is_output=*/false);
    node->weight = SavedVariable(weight, /*is_output=*/false);
    node->bias = SavedVariable(bias, /*is_output=*/false);
    node->normalized_shape = normalized_shape;
    set_history(output, node);
  }
  if (any_tangent(input, weight, bias)) {
    set_tangents(result,
                 composite::layer_norm_forward_tangents(input, normalized_shape, weight, bias, eps,
                                                        mean, rstd, statistics_returned));
  }
  return result;
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  if (compute_requires_grad(input, weight, bias) || any_tangent(input, weight, bias)) {
    return std::get<0>(differentiable_forward(input, normalized_shape, weight, bias, eps, false));
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return hipnorm::layer_norm_symint(input, normalized_shape, weight, bias, eps);
}

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  if (compute_requires_grad(input, weight, bias) || any_tangent(input, weight, bias)) {
    return differentiable_forward(input, normalized_shape, weight, bias, eps, true);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return layer_norm_forward_symint(input, normalized_shape, weight, bias, eps);
}

template <Op op>
Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  Tensors3 grads = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return layer_norm_backward_symint(op, grad_output, input, normalized_shape, mean, rstd, weight,
                                      bias, output_mask);
  }();
  if (compute_requires_grad(grad_output, input, weight)) {
    const auto node = make_node<LayerNormDoubleBackward>();
    node->set_next_edges(collect_next_edges(grad_output, input, weight));
    node->grad_output = SavedVariable(grad_output, /*is_output=*/false);
    node->input = SavedVariable(input, /*is_output=*/false);
    node->mean = SavedVariable(mean, /*is_output=*/false);
    node->rstd = SavedVariable(rstd, /*is_output=*/false);
    node->weight = SavedVariable(weight, /*is_output=*/false);
    node->normalized_shape = normalized_shape;
    set_history(std::get<0>(grads), node);
    set_history(std::get<1>(grads), node);
    set_history(std::get<2>(grads), node);
  }
  if (any_tangent(grad_output, input, weight)) {
    set_tangents(grads,
                 composite::layer_norm_backward_tangents(op, grad_output, input, normalized_shape,
                                                         mean, rstd, weight, bias, output_mask));
  }
  return grads;
}

template decltype(layer_norm_backward<Op::backward>) layer_norm_backward<Op::backward>;
template decltype(layer_norm_backward<Op::backward_fused>) layer_norm_backward<Op::backward_fused>;
template decltype(layer_norm_backward<Op::backward_two_kernel>)
    layer_norm_backward<Op::backward_two_kernel>;

Tensors3 layer_norm_double_backward(const std::optional<at::Tensor>& grad_dx,
                                    const std::optional<at::Tensor>& grad_dweight,
                                    const std::optional<at::Tensor>& grad_dbias,
                                    const at::Tensor& grad_output, const at::Tensor& input,
                                    c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                    const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                    std::array<bool, 3> output_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !any_tangent(grad_output, grad_dx, grad_dweight) && !any_tangent(input, grad_dbias, weight),
      kThirdDerivative);
  Tensors3 grads = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return hipnorm::layer_norm_double_backward(grad_dx, grad_dweight, grad_dbias, grad_output,
                                               input, normalized_shape, mean, rstd, weight,
                                               output_mask);
  }();
  if (compute_requires_grad(grad_dx, grad_dweight, grad_dbias, grad_output, input, weight)) {
    const auto node = make_node<torch::autograd::Error>(
        std::string(kThirdDerivative),
        collect_next_edges(grad_dx, grad_dweight, grad_dbias, grad_output, input, weight));
    set_history(std::get<0>(grads), node);
    set_history(std::get<1>(grads), node);
    set_history(std::get<2>(grads), node);
  }
  return grads;
}

}  // namespace hipnorm::autograd
