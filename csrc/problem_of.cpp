#include "csrc/problem_of.h"

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include "csrc/checks.h"

namespace hipnorm {
namespace {

// Every allocation of torch's CPU and GPU allocators starts at a multiple of this.
constexpr std::uintptr_t kAllocationAlignment = 64;

DType dtype_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kDouble: return DType::f64;
    default: break;
  }
  TORCH_INTERNAL_ASSERT(false, "hipnorm: dtype ", dtype, " passed the checks");
}

// Collects addresses and strides; the lowest bit set in any of them is what divides them all.
class Alignment {
 public:
  explicit Alignment(std::int64_t rows) : rows_(rows) {}

  void add_rows(const at::Tensor& tensor, RowLayout layout) {
    if (!layout.copy) bits_ |= address(tensor);
    add_stride(layout.stride * tensor.element_size());
  }
  void add_stride(std::int64_t bytes) {
    if (rows_ > 1) bits_ |= static_cast<std::uintptr_t>(bytes);
  }
  void add_row(const std::optional<at::Tensor>& tensor) {
    if (present(tensor) && tensor->is_contiguous()) bits_ |= address(*tensor);
  }
  int bytes() const { return static_cast<int>(bits_ & (~bits_ + 1)); }

 private:
  static std::uintptr_t address(const at::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  }
  std::int64_t rows_;
  std::uintptr_t bits_ = kAllocationAlignment;
};

Problem problem_of(Op op, const at::Tensor& input, std::int64_t normalized_ndim, std::int64_t rows,
                   const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias) {
  Problem problem;
  problem.op = op;
  problem.x = dtype_of(input.scalar_type());
  problem.has_weight = present(weight);
  problem.has_bias = present(bias);
  if (problem.has_weight) {
    problem.weight = dtype_of(weight->scalar_type());
  } else if (problem.has_bias) {
    problem.weight = dtype_of(bias->scalar_type());
  }
  problem.rows = rows;
  problem.cols = c10::multiply_integers(input.sizes().slice(input.dim() - normalized_ndim));
  return problem;
}

}  // namespace

RowLayout row_layout(const at::Tensor& tensor, std::int64_t normalized_ndim, std::int64_t cols) {
  const RowLayout contiguous{.stride = cols};
  if (tensor.is_contiguous()) return contiguous;
  const RowLayout copy{.stride = cols, .copy = true};
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  const std::int64_t leading = tensor.dim() - normalized_ndim;
  std::int64_t expected = 1;
  for (std::int64_t i = tensor.dim() - 1; i >= leading; --i) {
    if (sizes[i] != 1 && strides[i] != expected) return copy;
    expected *= sizes[i];
  }
  // Leading dimensions collapse to one where each steps over exactly the ones inside it.
  std::optional<std::int64_t> row_stride;
  for (std::int64_t i = leading - 1; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    if (!row_stride) {
      row_stride = strides[i];
      expected = strides[i];
    }
    if (strides[i] != expected) return copy;
    expected *= sizes[i];
  }
  return {.stride = row_stride.value_or(cols)};
}

ForwardProblem forward_problem(const at::Tensor& input, std::int64_t normalized_ndim,
                               std::int64_t rows, const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias) {
  ForwardProblem result;
  Problem& problem = result.problem;
  problem = problem_of(Op::forward, input, normalized_ndim, rows, weight, bias);
  result.x = row_layout(input, normalized_ndim, problem.cols);
  Alignment alignment(rows);
  alignment.add_rows(input, result.x);
  alignment.add_stride(problem.cols * input.element_size());  // y
  alignment.add_row(weight);
  alignment.add_row(bias);
  problem.alignment = alignment.bytes();
  return result;
}

BackwardProblem backward_problem(Op op, const at::Tensor* grad_output, const at::Tensor& input,
                                 std::int64_t normalized_ndim, std::int64_t rows,
                                 const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias,
                                 std::array<bool, 3> output_mask) {
  BackwardProblem result;
  Problem& problem = result.problem;
  problem = problem_of(op, input, normalized_ndim, rows, weight, bias);
  problem.grads = {.dx = output_mask[0],
                   .dweight = output_mask[1] && problem.has_weight,
                   .dbias = output_mask[2] && problem.has_bias};
  result.x = row_layout(input, normalized_ndim, problem.cols);
  Alignment alignment(rows);
  alignment.add_rows(input, result.x);
  if (grad_output != nullptr) {
    result.dy = row_layout(*grad_output, normalized_ndim, problem.cols);
    alignment.add_rows(*grad_output, result.dy);
  }
  alignment.add_stride(problem.cols * input.element_size());  // dx
  alignment.add_row(weight);
  problem.alignment = alignment.bytes();
  return result;
}

}  // namespace hipnorm
