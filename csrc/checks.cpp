#include "csrc/checks.h"

#include <c10/util/Exception.h>

namespace hipnorm {
namespace {

// Equality of concrete sizes at the cost of an integer comparison; of symbolic ones as a guard, or,
// where a size is known only at run time, as an assertion that the compiled program will make.
bool equal(const c10::SymInt& a, const c10::SymInt& b) {
  const auto concrete_a = a.maybe_as_int();
  const auto concrete_b = b.maybe_as_int();
  if (concrete_a && concrete_b) return *concrete_a == *concrete_b;
  return a.sym_eq(b).expect_true(__FILE__, __LINE__);
}

bool equal(c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i])) return false;
  }
  return true;
}

[[noreturn]] void refuse_input_shape(const at::Tensor& input,
                                     c10::SymIntArrayRef normalized_shape) {
  std::ostringstream sizes;
  for (const c10::SymInt& size : normalized_shape) sizes << ", " << size;
  TORCH_CHECK(false, "Given normalized_shape=", normalized_shape, ", expected input with shape [*",
              sizes.str(), "], but got input of size", input.sym_sizes());
}

void check_same_device(const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  TORCH_CHECK(tensor.device() == input.device(), "Expected ", name, " on the device of input, ",
              input.device(), ", but got ", name, " on ", tensor.device());
}

void check_parameter(const char* name, const at::Tensor& parameter, const at::Tensor& input,
                     c10::SymIntArrayRef normalized_shape) {
  TORCH_CHECK(equal(parameter.sym_sizes(), normalized_shape), "Expected ", name,
              " to be of same shape as normalized_shape, but got ", name, " of shape ",
              parameter.sym_sizes(), " and normalized_shape = ", normalized_shape);
  const at::ScalarType x = input.scalar_type();
  const at::ScalarType dtype = parameter.scalar_type();
  TORCH_CHECK(dtype == x || dtype == accumulate_dtype(x), "Expected ", name, " of dtype ",
              accumulate_dtype(x) == x ? "" : "Float or ", x, " for input of dtype ", x,
              ", but got ", name, " of dtype ", dtype);
  check_same_device(name, parameter, input);
}

// grad: a tensor with one element for each of input.
void check_like_input(const char* name, const at::Tensor& grad, const at::Tensor& input) {
  TORCH_CHECK(equal(grad.sym_sizes(), input.sym_sizes()), "Expected ", name,
              " of the shape of input, ", input.sym_sizes(), ", but got ", name, " of shape ",
              grad.sym_sizes());
  TORCH_CHECK(grad.scalar_type() == input.scalar_type(), "Expected ", name,
              " of the dtype of input, ", input.scalar_type(), ", but got ", name, " of dtype ",
              grad.scalar_type());
  check_same_device(name, grad, input);
}

void check_statistic(const char* name, const at::Tensor& statistic, const at::Tensor& input,
                     const c10::SymInt& rows) {
  TORCH_CHECK(equal(statistic.sym_numel(), rows), "Expected ", name, " of ", rows,
              " elements, one for each row of input, but got ", name, " of shape ",
              statistic.sym_sizes());
  const at::ScalarType x = input.scalar_type();
  const at::ScalarType dtype = statistic.scalar_type();
  TORCH_CHECK(dtype == x || dtype == accumulate_dtype(x), "Expected ", name, " of dtype ",
              accumulate_dtype(x) == x ? "" : "Float or ", x, " for input of dtype ", x,
              ", but got ", name, " of dtype ", dtype);
  check_same_device(name, statistic, input);
}

}  // namespace

c10::SymInt check_forward(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                          const std::optional<at::Tensor>& weight,
                          const std::optional<at::Tensor>& bias) {
  const at::ScalarType dtype = input.scalar_type();
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble,
      "Expected input of dtype Float, Half, BFloat16 or Double, but got input of dtype ", dtype);
  TORCH_CHECK(!normalized_shape.empty(),
              "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
              "one element, but got normalized_shape = ",
              normalized_shape);
  const c10::SymIntArrayRef sizes = input.sym_sizes();
  if (sizes.size() < normalized_shape.size() ||
      !equal(sizes.slice(sizes.size() - normalized_shape.size()), normalized_shape)) {
    refuse_input_shape(input, normalized_shape);
  }
  if (present(weight)) check_parameter("weight", *weight, input, normalized_shape);
  if (present(bias)) check_parameter("bias", *bias, input, normalized_shape);
  TORCH_CHECK(!present(weight) || !present(bias) || weight->scalar_type() == bias->scalar_type(),
              "Expected weight and bias of one dtype, but got weight of dtype ",
              weight->scalar_type(), " and bias of dtype ", bias->scalar_type());
  c10::SymInt rows = 1;
  for (const c10::SymInt& size : sizes.slice(0, sizes.size() - normalized_shape.size())) {
    rows *= size;
  }
  return rows;
}

c10::SymInt check_backward(const at::Tensor& grad_output, const at::Tensor& input,
                           c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                           const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias) {
  c10::SymInt rows = check_forward(input, normalized_shape, weight, bias);
  check_like_input("grad_output", grad_output, input);
  check_statistic("mean", mean, input, rows);
  check_statistic("rstd", rstd, input, rows);
  return rows;
}

c10::SymInt check_double_backward(const std::optional<at::Tensor>& grad_dx,
                                  const std::optional<at::Tensor>& grad_dweight,
                                  const std::optional<at::Tensor>& grad_dbias,
                                  const at::Tensor& grad_output, const at::Tensor& input,
                                  c10::SymIntArrayRef normalized_shape, const at::Tensor& mean,
                                  const at::Tensor& rstd, const std::optional<at::Tensor>& weight) {
  c10::SymInt rows =
      check_backward(grad_output, input, normalized_shape, mean, rstd, weight, std::nullopt);
  if (present(grad_dx)) check_like_input("grad_grad_input", *grad_dx, input);
  if (present(grad_dweight)) {
    check_parameter("grad_grad_weight", *grad_dweight, input, normalized_shape);
  }
  if (present(grad_dbias)) {
    check_parameter("grad_grad_bias", *grad_dbias, input, normalized_shape);
  }
  return rows;
}

}  // namespace hipnorm
