#include "csrc/dispatch/problem.h"

#include "csrc/dispatch/text.h"

namespace hipnorm {

std::string_view to_string(Op op) {
  switch (op) {
    case Op::forward: return "forward";
    case Op::backward: return "backward";
    case Op::backward_fused: return "backward_fused";
    case Op::backward_two_kernel: return "backward_two_kernel";
  }
  return "unknown";
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::none: return "none";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
  }
  return "unknown";
}

std::optional<Op> parse_op(std::string_view text) {
  for (Op op : kOps) {
    if (text == to_string(op)) return op;
  }
  return std::nullopt;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (DType dtype : {DType::none, DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (text == to_string(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string to_string(const Problem& problem) {
  std::string text = concat(to_string(problem.op), ' ', to_string(problem.x), ' ', problem.rows,
                            'x', problem.cols);
  if (problem.has_weight) text += concat(" weight=", to_string(problem.weight));
  if (problem.has_bias) {
    text += problem.has_weight ? " bias" : concat(" bias=", to_string(problem.weight));
  }
  if (problem.is_backward()) {
    std::string grads;
    if (problem.grads.dx) grads += ",dx";
    if (problem.grads.dweight) grads += ",dweight";
    if (problem.grads.dbias) grads += ",dbias";
    text += concat(" grads=", grads.empty() ? "none" : grads.substr(1));
  }
  return text + concat(" alignment=", problem.alignment);
}

}  // namespace hipnorm
