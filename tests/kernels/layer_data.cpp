#include "tests/kernels/layer_data.h"

#include <algorithm>
#include <random>

namespace hipnorm::testing {
namespace {

std::int64_t row_stride(std::int64_t cols, DType dtype, Layout layout, std::int64_t gap) {
  switch (layout) {
    case Layout::dense: return cols;
    case Layout::misaligned: return cols + gap;
    case Layout::aligned_gap: {
      const std::int64_t line = 64 / size_of(dtype);
      return (cols / line + 2) * line;
    }
    case Layout::expanded: break;
  }
  return 0;
}

std::int64_t extent(std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + cols;
}

std::uintptr_t address(const Array& array) {
  return reinterpret_cast<std::uintptr_t>(array.data());
}

}  // namespace

LayerData::LayerData(std::int64_t m, std::int64_t n, DType x_type, DType weight_type, Layout layout,
                     Fill fill)
    : rows(m),
      cols(n),
      offset(layout == Layout::misaligned ? size_of(x_type) : 0),
      x_stride(row_stride(n, x_type, layout, 3)),
      dy_stride(row_stride(n, x_type, layout, 5)),
      x(x_type, extent(m, n, x_stride), offset),
      dy(x_type, extent(m, n, dy_stride), offset),
      weight(weight_type, n, layout == Layout::misaligned ? size_of(weight_type) : 0),
      bias(weight_type, n, layout == Layout::misaligned ? size_of(weight_type) : 0) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(m * 1'000'003 + n));
  std::normal_distribution<double> normal;
  const std::int64_t filled = fill == Fill::nothing ? 0
                              : x_stride == 0       ? std::min(m, std::int64_t{1})
                                                    : m;
  for (std::int64_t r = 0; r < filled; ++r) {
    for (std::int64_t c = 0; c < n; ++c) set_x(r, c, -2.3 + 0.5 * normal(engine));
    for (std::int64_t c = 0; c < n; ++c) set_dy(r, c, normal(engine));
  }
  for (std::int64_t c = 0; c < n; ++c) {
    weight.set(c, normal(engine));
    bias.set(c, normal(engine));
  }
}

void LayerData::save_statistics() {
  const DType accumulate = accumulate_type(x.dtype());
  const reference::ForwardTruth truth = reference::forward(forward_inputs({false, false}));
  mean = Array(accumulate, rows, offset == 0 ? 0 : size_of(accumulate));
  rstd = Array(accumulate, rows, offset == 0 ? 0 : size_of(accumulate));
  for (std::int64_t r = 0; r < rows; ++r) {
    mean.set(r, truth.mean[static_cast<std::size_t>(r)]);
    rstd.set(r, truth.rstd[static_cast<std::size_t>(r)]);
  }
}

Problem LayerData::problem(Op op, Affine affine, GradMask grads) const {
  Problem problem;
  problem.op = op;
  problem.x = x.dtype();
  problem.rows = rows;
  problem.cols = cols;
  problem.has_weight = affine.weight;
  problem.has_bias = affine.bias;
  if (problem.is_backward()) problem.grads = grads;
  if (affine.weight || affine.bias || grads.columns()) problem.weight = weight.dtype();
  const std::uintptr_t bits = 64u | address(x) | std::uintptr_t(x_stride * size_of(x.dtype())) |
                              address(dy) | std::uintptr_t(dy_stride * size_of(x.dtype())) |
                              std::uintptr_t(cols * size_of(x.dtype())) | address(weight) |
                              address(bias);
  problem.alignment = static_cast<int>(bits & (~bits + 1));
  return problem;
}

reference::ForwardInputs LayerData::forward_inputs(Affine affine) const {
  return {.rows = rows,
          .cols = cols,
          .x = {x.dtype(), x.data(), x_stride},
          .weight = {weight.dtype(), affine.weight ? weight.data() : nullptr},
          .bias = {bias.dtype(), affine.bias ? bias.data() : nullptr},
          .eps = eps};
}

reference::BackwardInputs LayerData::backward_inputs(Affine affine) const {
  return {.rows = rows,
          .cols = cols,
          .dy = {dy.dtype(), dy.data(), dy_stride},
          .x = {x.dtype(), x.data(), x_stride},
          .weight = {weight.dtype(), affine.weight ? weight.data() : nullptr},
          .mean = {mean.dtype(), mean.data()},
          .rstd = {rstd.dtype(), rstd.data()},
          .eps = eps};
}

}  // namespace hipnorm::testing
