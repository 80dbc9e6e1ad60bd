// One LayerNorm's inputs, in the memory layout that a test asks for.
#pragma once

#include <cstdint>

#include "csrc/dispatch/problem.h"
#include "tests/kernels/array.h"
#include "tests/reference/reference.h"

namespace hipnorm::testing {

enum class Layout {
  dense,        // 64-byte aligned, contiguous
  misaligned,   // every array one element past 64 bytes, rows of x and dy 3 and 5 elements apart
  aligned_gap,  // rows of x and dy apart, each 64-byte aligned
  expanded,     // row strides 0: all rows are one
};

// What x and dy start with. `nothing`, NaN, saves the time of a normal number for each element
// where a test sets them all.
enum class Fill { random, nothing };

// Which of the optional inputs exist.
struct Affine {
  bool weight = true;
  bool bias = true;
};

// x = −2.3 + 0.5·randn; dy, weight, bias = randn: fixed by the arguments. Gaps between rows are
// NaN. Tests change what they like, then call save_statistics().
struct LayerData {
  LayerData(std::int64_t rows, std::int64_t cols, DType x_type, DType weight_type,
            Layout layout = Layout::dense, Fill fill = Fill::random);

  double get_x(std::int64_t r, std::int64_t c) const { return x[r * x_stride + c]; }
  void set_x(std::int64_t r, std::int64_t c, double value) { x.set(r * x_stride + c, value); }
  void set_dy(std::int64_t r, std::int64_t c, double value) { dy.set(r * dy_stride + c, value); }

  // mean and rstd of x, as a correct forward saves them: input of backward.
  void save_statistics();

  // `grads` for backward. The alignment is that of the arrays; weight: none when nothing has it.
  Problem problem(Op op, Affine affine, GradMask grads = {}) const;
  reference::ForwardInputs forward_inputs(Affine affine) const;
  reference::BackwardInputs backward_inputs(Affine affine) const;

  std::int64_t rows, cols;
  int offset;  // bytes past 64 at which arrays start, outputs too
  std::int64_t x_stride, dy_stride;
  double eps = 1e-5;
  Array x, dy, weight, bias, mean, rstd;
};

}  // namespace hipnorm::testing
