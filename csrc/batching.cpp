#include "csrc/batching.h"

#include <ATen/TensorOperators.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "csrc/checks.h"
#include "csrc/operators.h"

namespace hipnorm::batching {
namespace {

using at::functorch::makeBatched;

// The level of vmap that is being handled; operators called while it lives go to the next level.
class VmapLevel {
 public:
  VmapLevel() : leave_(c10::DispatchKey::FuncTorchBatched) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    TORCH_INTERNAL_ASSERT(layer.has_value(), "hipnorm: a batched tensor outside vmap");
    id_ = layer->layerId();
  }
  std::int64_t id() const { return id_; }

 private:
  c10::impl::ExcludeDispatchKeyGuard leave_;
  std::int64_t id_ = 0;
};

// A tensor, and which of its dimensions is vmapped.
struct Batched {
  at::Tensor value;  // undefined: an optional that is absent
  std::optional<std::int64_t> dim;

  // One example of it; of an empty batch, zeros, as a sum so that gradients stay connected.
  at::Tensor example(std::int64_t i) const {
    if (!dim) return value;
    return value.size(*dim) == 0 ? value.sum(*dim) : value.select(*dim, i);
  }
  std::optional<at::Tensor> optional_example(std::int64_t i) const {
    return value.defined() ? std::optional(example(i)) : std::nullopt;
  }
  // The vmapped dimension in front; expanded if there was none.
  at::Tensor in_front(std::int64_t batch) const {
    if (dim) return value.movedim(*dim, 0);
    std::vector<c10::SymInt> sizes = value.sym_sizes().vec();
    sizes.insert(sizes.begin(), batch);
    return value.expand_symint(sizes);
  }
};

Batched unwrap(const std::optional<at::Tensor>& tensor, const VmapLevel& level) {
  if (!present(tensor)) return {};
  auto [value, dim] = at::functorch::unwrapTensorAtLevel(*tensor, level.id());
  return {std::move(value), dim};
}

// Size of the vmapped dimension; nullopt: none of them has one.
template <class... T>
std::optional<std::int64_t> batch_of(const T&... tensors) {
  std::optional<std::int64_t> batch;
  const auto look = [&batch](const Batched& t) {
    if (t.dim) batch = t.value.size(*t.dim);
  };
  (look(tensors), ...);
  return batch;
}

at::Tensor wrap(const at::Tensor& tensor, bool batched, const VmapLevel& level) {
  return batched && tensor.defined() ? makeBatched(tensor, 0, level.id()) : tensor;
}

// Calls call(i) for every example and stacks the three results. For an empty batch one call on
// zeros tells what the results look like, and none of it is kept.
template <class Call>
Tensors3 for_each_example(std::int64_t batch, const VmapLevel& level, const Call& call) {
  std::array<std::vector<at::Tensor>, 3> results;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(batch, 1); ++i) {
    Tensors3 result = call(i);
    results[0].push_back(std::move(std::get<0>(result)));
    results[1].push_back(std::move(std::get<1>(result)));
    results[2].push_back(std::move(std::get<2>(result)));
  }
  const auto stacked = [&](const std::vector<at::Tensor>& examples) {
    return examples[0].defined()
               ? makeBatched(at::stack(examples).narrow(0, 0, batch), 0, level.id())
               : at::Tensor();
  };
  return {stacked(results[0]), stacked(results[1]), stacked(results[2])};
}

// A parameter [B?, normalized_shape] so that it broadcasts over [B, *, normalized_shape].
at::Tensor over_rows(const Batched& parameter, std::int64_t leading) {
  at::Tensor value = parameter.value.to(accumulate_dtype(parameter.value.scalar_type()));
  if (!parameter.dim) return value;
  value = value.movedim(*parameter.dim, 0);
  for (std::int64_t i = 0; i < leading; ++i) value = value.unsqueeze(1);
  return value;
}

}  // namespace

Tensors3 layer_norm_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, double eps) {
  check_forward(input, normalized_shape, weight, bias);
  const std::int64_t leading =
      input.dim() - static_cast<std::int64_t>(normalized_shape.size());  // of one example
  const VmapLevel level;
  const Batched x = unwrap(input, level);
  const Batched w = unwrap(weight, level);
  const Batched b = unwrap(bias, level);
  const at::Tensor rows = x.dim ? x.value.movedim(*x.dim, 0) : x.value;
  if (!w.dim && !b.dim) {
    const auto [y, mean, rstd] =
        layer_norm_forward_symint(rows, normalized_shape, weight, bias, eps);
    const bool batched = x.dim.has_value();
    return {wrap(y, batched, level), wrap(mean, batched, level), wrap(rstd, batched, level)};
  }
  // Each example has its own weights: normalise once, in the accumulate dtype so that y is rounded
  // once, and apply them afterwards.
  const at::ScalarType dtype = rows.scalar_type();
  auto [y, mean, rstd] = layer_norm_forward_symint(
      rows.to(accumulate_dtype(dtype)), normalized_shape, std::nullopt, std::nullopt, eps);
  if (w.value.defined()) y = y * over_rows(w, leading);
  if (b.value.defined()) y = y + over_rows(b, leading);
  return {wrap(y.to(dtype), true, level), wrap(mean, x.dim.has_value(), level),
          wrap(rstd, x.dim.has_value(), level)};
}

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  return std::get<0>(layer_norm_forward(input, normalized_shape, weight, bias, eps));
}

template <Op op>
Tensors3 layer_norm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                             c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                             const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             std::array<bool, 3> output_mask) {
  check_backward(grad_output, input, normalized_shape, mean, rstd, weight, bias);
  const VmapLevel level;
  const Batched dy = unwrap(grad_output, level);
  const Batched x = unwrap(input, level);
  const Batched mu = unwrap(mean, level);
  const Batched r = unwrap(rstd, level);
  const Batched w = unwrap(weight, level);
  const Batched b = unwrap(bias, level);
  const std::optional<std::int64_t> batch = batch_of(dy, x, mu, r, w, b);
  if (!batch) {
    return layer_norm_backward_symint(op, grad_output, input, normalized_shape, mean, rstd, weight,
                                      bias, output_mask);
  }
  const bool columns =
      (output_mask[1] && w.value.defined()) || (output_mask[2] && b.value.defined());
  if (!columns && !w.dim && !b.dim) {
    const auto [dx, dweight, dbias] = layer_norm_backward_symint(
        op, dy.in_front(*batch), x.in_front(*batch), normalized_shape, mu.in_front(*batch),
        r.in_front(*batch), weight, bias, output_mask);
    return {wrap(dx, true, level), dweight, dbias};
  }
  return for_each_example(*batch, level, [&](std::int64_t i) {
    return layer_norm_backward_symint(op, dy.example(i), x.example(i), normalized_shape,
                                      mu.example(i), r.example(i), w.optional_example(i),
                                      b.optional_example(i), output_mask);
  });
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
  check_backward(grad_output, input, normalized_shape, mean, rstd, weight, std::nullopt);
  const VmapLevel level;
  const Batched a_dx = unwrap(grad_dx, level);
  const Batched a_dweight = unwrap(grad_dweight, level);
  const Batched a_dbias = unwrap(grad_dbias, level);
  const Batched dy = unwrap(grad_output, level);
  const Batched x = unwrap(input, level);
  const Batched mu = unwrap(mean, level);
  const Batched r = unwrap(rstd, level);
  const Batched w = unwrap(weight, level);
  const std::optional<std::int64_t> batch = batch_of(a_dx, a_dweight, a_dbias, dy, x, mu, r, w);
  const auto call = [&](std::int64_t i) {
    return hipnorm::layer_norm_double_backward(
        a_dx.optional_example(i), a_dweight.optional_example(i), a_dbias.optional_example(i),
        dy.example(i), x.example(i), normalized_shape, mu.example(i), r.example(i),
        w.optional_example(i), output_mask);
  };
  return batch ? for_each_example(*batch, level, call) : call(0);
}

}  // namespace hipnorm::batching
