#include "bench/check.h"

#include <c10/util/Exception.h>

#include <array>

#include "tests/reference/judge.h"

namespace hipnorm::bench {
namespace {

DType dtype_of(const at::Tensor& tensor) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (scalar_type(dtype) == tensor.scalar_type()) return dtype;
  }
  TORCH_CHECK(false, "expected an output in f32, f16, bf16 or f64, got ", tensor.scalar_type());
}

// On the CPU and contiguous; a wrong number of elements would make the judge read past the end.
at::Tensor fetch(const at::Tensor& tensor, std::int64_t numel, const char* name) {
  TORCH_CHECK(tensor.defined(), name, ": expected a tensor, got none");
  TORCH_CHECK(tensor.numel() == numel, name, ": expected ", numel, " elements, got ",
              tensor.numel());
  return tensor.to(at::kCPU).contiguous();
}

reference::Matrix matrix(const at::Tensor& tensor, std::int64_t cols) {
  return {dtype_of(tensor), tensor.const_data_ptr(), cols};
}
reference::Vector vector(const at::Tensor& tensor) {
  return {dtype_of(tensor), tensor.const_data_ptr()};
}

template <typename Verdict>
Checks to_checks(const std::vector<Verdict>& verdicts) {
  const auto convert = [](const Verdict& verdict) {
    return Check{verdict.ok(), verdict.worst(), verdict.ok() ? "" : verdict.describe()};
  };
  return {convert(verdicts.at(0)), convert(verdicts.at(1))};
}

}  // namespace

Checks check_forward(const Inputs& inputs, const Outputs& hipnorm, const Outputs& aten,
                     int threads) {
  const auto [rows, cols] = inputs.shape;
  const at::Tensor x = fetch(inputs.x, rows * cols, "x");
  const at::Tensor weight = fetch(inputs.weight, cols, "weight");
  const at::Tensor bias = fetch(inputs.bias, cols, "bias");
  std::vector<at::Tensor> kept;
  std::vector<reference::ForwardOutputs> results;
  for (const Outputs* outputs : {&hipnorm, &aten}) {
    const at::Tensor y = fetch((*outputs)[0], rows * cols, "y");
    const at::Tensor mean = fetch((*outputs)[1], rows, "mean");
    const at::Tensor rstd = fetch((*outputs)[2], rows, "rstd");
    results.push_back({.y = matrix(y, cols), .mean = vector(mean), .rstd = vector(rstd)});
    kept.insert(kept.end(), {y, mean, rstd});
  }
  return to_checks(reference::judge_forward({.rows = rows,
                                             .cols = cols,
                                             .x = matrix(x, cols),
                                             .weight = vector(weight),
                                             .bias = vector(bias),
                                             .eps = kEps},
                                            results, threads));
}

Checks check_backward(const Inputs& inputs, const Outputs& hipnorm, const Outputs& aten,
                      int threads) {
  const auto [rows, cols] = inputs.shape;
  const at::Tensor x = fetch(inputs.x, rows * cols, "x");
  const at::Tensor dy = fetch(inputs.dy, rows * cols, "dy");
  const at::Tensor weight = fetch(inputs.weight, cols, "weight");
  std::vector<at::Tensor> kept;
  std::vector<reference::BackwardOutputs> results;
  for (const Outputs* outputs : {&hipnorm, &aten}) {
    const at::Tensor dx = fetch((*outputs)[0], rows * cols, "dX");
    const at::Tensor dweight = fetch((*outputs)[1], cols, "dW");
    const at::Tensor dbias = fetch((*outputs)[2], cols, "dB");
    results.push_back({.dx = matrix(dx, cols), .dweight = vector(dweight), .dbias = vector(dbias)});
    kept.insert(kept.end(), {dx, dweight, dbias});
  }
  return to_checks(reference::judge_backward({.rows = rows,
                                              .cols = cols,
                                              .dy = matrix(dy, cols),
                                              .x = matrix(x, cols),
                                              .weight = vector(weight),
                                              .mean = {},
                                              .rstd = {},
                                              .eps = kEps},
                                             results, threads));
}

}  // namespace hipnorm::bench
