// The operators' schemas, and which function answers for which dispatch key. Nothing else.
#include <torch/library.h>

#include "csrc/autocast.h"
#include "csrc/autograd.h"
#include "csrc/batching.h"
#include "csrc/composite.h"
#include "csrc/layer_norm.h"
#include "csrc/meta.h"
#include "csrc/torch_version.h"

namespace hipnorm {
namespace {

constexpr const char* kOperators[] = {"layer_norm",
                                      "layer_norm_forward",
                                      "layer_norm_backward",
                                      "layer_norm_backward_fused",
                                      "layer_norm_backward_two_kernel",
                                      "_layer_norm_double_backward",
                                      "selected_config"};

// Under a torch of another version no kernel is registered; every operator answers with this.
void refuse_torch_version(const c10::OperatorHandle&, torch::jit::Stack*) {
  const std::optional<std::string> mismatch = torch_version_mismatch();
  TORCH_CHECK(false, mismatch.value_or("hipnorm: torch version mismatch"));
}

// The entry points ask the tensors where they lie.
void implement_backend(torch::Library& m) {
  if (torch_version_mismatch()) return;
  m.impl("layer_norm", backend::layer_norm);
  m.impl("layer_norm_forward", backend::layer_norm_forward);
  m.impl("layer_norm_backward", backend::layer_norm_backward);
  m.impl("layer_norm_backward_fused", backend::layer_norm_backward_fused);
  m.impl("layer_norm_backward_two_kernel", backend::layer_norm_backward_two_kernel);
  m.impl("selected_config", backend::selected_config);
}

}  // namespace

TORCH_LIBRARY(hipnorm, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  m.def(
      "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, "
      "Tensor? bias=None, float eps=1e-05) -> Tensor",
      tags);
  m.def(
      "layer_norm_forward(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, "
      "Tensor? bias=None, float eps=1e-05) -> (Tensor output, Tensor mean, Tensor rstd)",
      tags);
  m.def(
      "layer_norm_backward(Tensor grad_output, Tensor input, SymInt[] normalized_shape, "
      "Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) "
      "-> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
      tags);
  m.def(
      "layer_norm_backward_fused(Tensor grad_output, Tensor input, SymInt[] normalized_shape, "
      "Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) "
      "-> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
      tags);
  m.def(
      "layer_norm_backward_two_kernel(Tensor grad_output, Tensor input, "
      "SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
      "bool[3] output_mask) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
      tags);
  m.def(
      "_layer_norm_double_backward(Tensor? grad_grad_input, Tensor? grad_grad_weight, "
      "Tensor? grad_grad_bias, Tensor grad_output, Tensor input, SymInt[] normalized_shape, "
      "Tensor mean, Tensor rstd, Tensor? weight, bool[3] output_mask) "
      "-> (Tensor grad_grad_output, Tensor grad_input, Tensor grad_weight)",
      tags);
  m.def(
      "selected_config(str op, Tensor input, SymInt[] normalized_shape, Tensor? weight=None, "
      "Tensor? bias=None, bool[3] output_mask=[True, True, True]) -> str",
      tags);
  if (const auto mismatch = torch_version_mismatch()) {
    TORCH_WARN(*mismatch);
    for (const char* name : kOperators) {
      m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_torch_version>());
    }
  }
}

TORCH_LIBRARY_IMPL(hipnorm, CPU, m) { implement_backend(m); }

// In every build, so that one without GPU kernels says so (target.cpp).
TORCH_LIBRARY_IMPL(hipnorm, CUDA, m) { implement_backend(m); }

TORCH_LIBRARY_IMPL(hipnorm, Meta, m) {
  if (torch_version_mismatch()) return;
  m.impl("layer_norm", meta::layer_norm);
  m.impl("layer_norm_forward", meta::layer_norm_forward);
  m.impl("layer_norm_backward", meta::layer_norm_backward);
  m.impl("layer_norm_backward_fused", meta::layer_norm_backward);
  m.impl("layer_norm_backward_two_kernel", meta::layer_norm_backward);
}

TORCH_LIBRARY_IMPL(hipnorm, CompositeExplicitAutograd, m) {
  if (torch_version_mismatch()) return;
  m.impl("_layer_norm_double_backward", composite::layer_norm_double_backward);
}

TORCH_LIBRARY_IMPL(hipnorm, Autograd, m) {
  if (torch_version_mismatch()) return;
  m.impl("layer_norm", autograd::layer_norm);
  m.impl("layer_norm_forward", autograd::layer_norm_forward);
  m.impl("layer_norm_backward", autograd::layer_norm_backward<Op::backward>);
  m.impl("layer_norm_backward_fused", autograd::layer_norm_backward<Op::backward_fused>);
  m.impl("layer_norm_backward_two_kernel", autograd::layer_norm_backward<Op::backward_two_kernel>);
  m.impl("_layer_norm_double_backward", autograd::layer_norm_double_backward);
}

TORCH_LIBRARY_IMPL(hipnorm, AutocastCUDA, m) {
  if (torch_version_mismatch()) return;
  m.impl("layer_norm", autocast::layer_norm);
  m.impl("layer_norm_forward", autocast::layer_norm_forward);
}

TORCH_LIBRARY_IMPL(hipnorm, FuncTorchBatched, m) {
  if (torch_version_mismatch()) return;
  m.impl("layer_norm", batching::layer_norm);
  m.impl("layer_norm_forward", batching::layer_norm_forward);
  m.impl("layer_norm_backward", batching::layer_norm_backward<Op::backward>);
  m.impl("layer_norm_backward_fused", batching::layer_norm_backward<Op::backward_fused>);
  m.impl("layer_norm_backward_two_kernel", batching::layer_norm_backward<Op::backward_two_kernel>);
  m.impl("_layer_norm_double_backward", batching::layer_norm_double_backward);
}

}  // namespace hipnorm
