#include <c10/core/DeviceGuard.h>

#include "csrc/checks.h"
#include "csrc/layer_norm.h"
#include "csrc/problem_of.h"
#include "csrc/target.h"

namespace hipnorm::backend {

std::string selected_config(std::string_view op, const at::Tensor& input,
                            c10::SymIntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias,
                            std::array<bool, 3> output_mask) {
  const std::optional<Op> parsed = parse_op(op);
  TORCH_CHECK_VALUE(parsed.has_value(), "Expected op to be forward, backward, backward_fused or ",
                    "backward_two_kernel, but got \"", op, "\"");
  const std::int64_t rows = check_forward(input, normalized_shape, weight, bias).expect_int();
  const auto normalized_ndim = static_cast<std::int64_t>(normalized_shape.size());
  const Problem problem = *parsed == Op::forward
                              ? forward_problem(input, normalized_ndim, rows, weight, bias).problem
                              : backward_problem(*parsed, nullptr, input, normalized_ndim, rows,
                                                 weight, bias, output_mask)
                                    .problem;
  const bool nothing_to_write =
      problem.is_backward() && !problem.grads.dx && !problem.grads.columns();
  if (problem.rows == 0 || problem.cols == 0 || nothing_to_write) return "none";
  const c10::DeviceGuard guard(input.device());
  return describe(selection_for(problem, target_of(input.device()).device));
}

}  // namespace hipnorm::backend
