// Every entry point keeps one order: check, guard the device, return early when there is nothing to
// compute, select, allocate, launch, check the launch.
#include "csrc/layer_norm.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/MaybeOwned.h>

#include <limits>

#include "csrc/checks.h"
#include "csrc/problem_of.h"
#include "csrc/target.h"
#include "kernels/launch.h"

namespace hipnorm::backend {
namespace {

// at::empty takes 220 ns a tensor here, the public function under it 166 ns, without the trip
// through the dispatcher: for the three tensors of a forward 160 ns of the 950 of a 1x256 call.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  if (device.is_cpu()) return at::Tensor(at::detail::empty_cpu(sizes, dtype));
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor empty_workspace(std::int64_t bytes, c10::Device device) {
  return bytes == 0 ? at::Tensor() : empty({bytes}, at::kByte, device);
}

// Leading dimensions of input, then ones: the shape of mean and rstd.
at::DimVector statistics_shape(const at::Tensor& input, std::size_t normalized_ndim) {
  at::DimVector shape(input.sizes());
  std::fill(shape.end() - static_cast<std::ptrdiff_t>(normalized_ndim), shape.end(), 1);
  return shape;
}

const void* data(const std::optional<at::Tensor>& tensor) {
  return present(tensor) ? tensor->const_data_ptr() : nullptr;
}
void* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

// A parameter as the kernels read it. Contiguous already in all but contrived cases.
std::optional<at::Tensor> contiguous_copy(const std::optional<at::Tensor>& tensor) {
  return present(tensor) && !tensor->is_contiguous() ? tensor->contiguous()
                                                     : std::optional<at::Tensor>();
}

c10::MaybeOwned<at::Tensor> as_rows(const at::Tensor& tensor, RowLayout layout) {
  return layout.copy ? c10::MaybeOwned<at::Tensor>::owned(tensor.contiguous())
                     : c10::MaybeOwned<at::Tensor>::borrowed(tensor);
}

// mean or rstd as the kernels read it: contiguous, accumulate dtype.
c10::MaybeOwned<at::Tensor> as_statistic(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.scalar_type() == dtype && tensor.is_contiguous()) {
    return c10::MaybeOwned<at::Tensor>::borrowed(tensor);
  }
  return c10::MaybeOwned<at::Tensor>::owned(tensor.to(dtype).contiguous());
}

Tensors3 backward(Op op, const at::Tensor& grad_output, const at::Tensor& input,
                  c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                  const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                  const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask) {
  const std::int64_t rows =
      check_backward(grad_output, input, normalized_shape, mean, rstd, weight, bias).expect_int();
  const c10::Device device = input.device();
  const c10::DeviceGuard guard(device);
  const auto normalized_ndim = static_cast<std::int64_t>(normalized_shape.size());
  const auto [problem, x_layout, dy_layout] =
      backward_problem(op, &grad_output, input, normalized_ndim, rows, weight, bias, output_mask);
  const at::IntArrayRef columns = input.sizes().slice(input.dim() - normalized_ndim);

  const auto allocate = [&, grads = problem.grads] {
    return Tensors3(grads.dx ? empty(input.sizes(), input.scalar_type(), device) : at::Tensor(),
                    grads.dweight ? empty(columns, weight->scalar_type(), device) : at::Tensor(),
                    grads.dbias ? empty(columns, bias->scalar_type(), device) : at::Tensor());
  };
  if (!problem.grads.dx && !problem.grads.columns()) return {};
  if (problem.rows == 0 || problem.cols == 0) {
    Tensors3 grads = allocate();
    if (problem.grads.dweight) std::get<1>(grads).zero_();
    if (problem.grads.dbias) std::get<2>(grads).zero_();
    return grads;
  }

  const Target target = target_of(device);
  const Selection selection = selection_for(problem, target.device);

  const auto dy = as_rows(grad_output, dy_layout);
  const auto x = as_rows(input, x_layout);
  const at::ScalarType accumulate = accumulate_dtype(input.scalar_type());
  const auto mean_read = as_statistic(mean, accumulate);
  const auto rstd_read = as_statistic(rstd, accumulate);
  const std::optional<at::Tensor> weight_copy = contiguous_copy(weight);
  Tensors3 grads = allocate();
  const at::Tensor workspace = empty_workspace(selection.plan.workspace_bytes, device);

  const Error error = launch_backward({.dy = dy->const_data_ptr(),
                                       .dy_stride = dy_layout.stride,
                                       .x = x->const_data_ptr(),
                                       .x_stride = x_layout.stride,
                                       .mean = mean_read->const_data_ptr(),
                                       .rstd = rstd_read->const_data_ptr(),
                                       .weight = data(weight_copy ? weight_copy : weight),
                                       .dx = mutable_data(std::get<0>(grads)),
                                       .dweight = mutable_data(std::get<1>(grads)),
                                       .dbias = mutable_data(std::get<2>(grads)),
                                       .workspace = mutable_data(workspace)},
                                      {.problem = problem,
                                       .device = target.device,
                                       .config = selection.config,
                                       .plan = selection.plan,
                                       .parallel_for = target.parallel_for,
                                       .stream = target.stream});
  TORCH_CHECK(!error, "hipnorm: ", *error);
  return grads;
}

}  // namespace

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  const std::int64_t rows = check_forward(input, normalized_shape, weight, bias).expect_int();
  const c10::Device device = input.device();
  const c10::DeviceGuard guard(device);
  const auto [problem, x_layout] = forward_problem(
      input, static_cast<std::int64_t>(normalized_shape.size()), rows, weight, bias);

  const at::ScalarType accumulate = accumulate_dtype(input.scalar_type());
  const at::DimVector statistics = statistics_shape(input, normalized_shape.size());
  const auto allocate = [&] {
    return Tensors3(empty(input.sizes(), input.scalar_type(), device),
                    empty(statistics, accumulate, device), empty(statistics, accumulate, device));
  };
  if (problem.rows == 0 || problem.cols == 0) {
    Tensors3 result = allocate();
    std::get<1>(result).zero_();  // as ATen on the CPU answers for N = 0: Σx = 0, var = 0/0
    std::get<2>(result).fill_(std::numeric_limits<double>::quiet_NaN());
    return result;
  }

  const Target target = target_of(device);
  const Selection selection = selection_for(problem, target.device);

  const auto x = as_rows(input, x_layout);
  const std::optional<at::Tensor> weight_copy = contiguous_copy(weight);
  const std::optional<at::Tensor> bias_copy = contiguous_copy(bias);
  Tensors3 result = allocate();
  const at::Tensor workspace = empty_workspace(selection.plan.workspace_bytes, device);

  const Error error = launch_forward({.x = x->const_data_ptr(),
                                      .x_stride = x_layout.stride,
                                      .weight = data(weight_copy ? weight_copy : weight),
                                      .bias = data(bias_copy ? bias_copy : bias),
                                      .eps = eps,
                                      .y = mutable_data(std::get<0>(result)),
                                      .mean = mutable_data(std::get<1>(result)),
                                      .rstd = mutable_data(std::get<2>(result)),
                                      .workspace = mutable_data(workspace)},
                                     {.problem = problem,
                                      .device = target.device,
                                      .config = selection.config,
                                      .plan = selection.plan,
                                      .parallel_for = target.parallel_for,
                                      .stream = target.stream});
  TORCH_CHECK(!error, "hipnorm: ", *error);
  return result;
}

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  return std::get<0>(layer_norm_forward(input, normalized_shape, weight, bias, eps));
}

Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  return backward(Op::backward, grad_output, input, normalized_shape, mean, rstd, weight, bias,
                  output_mask);
}

Tensors3 layer_norm_backward_fused(const at::Tensor& grad_output, const at::Tensor& input,
                                   c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::array<bool, 3> output_mask) {
  return backward(Op::backward_fused, grad_output, input, normalized_shape, mean, rstd, weight,
                  bias, output_mask);
}

Tensors3 layer_norm_backward_two_kernel(const at::Tensor& grad_output, const at::Tensor& input,
                                        c10::SymIntArrayRef normalized_shape,
                                        const at::Tensor& mean, const at::Tensor& rstd,
                                        const std::optional<at::Tensor>& weight,
                                        const std::optional<at::Tensor>& bias,
                                        std::array<bool, 3> output_mask) {
  return backward(Op::backward_two_kernel, grad_output, input, normalized_shape, mean, rstd, weight,
                  bias, output_mask);
}

}  // namespace hipnorm::backend
