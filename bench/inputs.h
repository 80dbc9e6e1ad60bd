// The tensors that a case is measured on.
#pragma once

#include <ATen/core/Tensor.h>

#include "bench/shapes.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::bench {

inline constexpr double kEps = 1e-5;

// x, dy: [M, N]; weight, bias: [N]; all of one dtype and on one device, contiguous.
struct Inputs {
  Shape shape;
  DType dtype = DType::f32;
  at::Tensor x;
  at::Tensor dy;  // undefined where only forward is measured
  at::Tensor weight;
  at::Tensor bias;

  std::int64_t tensor_bytes() const { return x.numel() * x.element_size(); }  // of one [M, N]
};

at::ScalarType scalar_type(DType dtype);

// x = -2.3 + 0.5*randn; dy, weight, bias = randn. The random numbers depend on the shape and the
// kind of device alone: they are drawn there in f32 (f64 for f64) from a fixed seed, then rounded.
Inputs make_inputs(const Shape& shape, DType dtype, at::Device device, bool with_dy);

// Bytes of memory that one case takes at its peak, which is while it is judged by `threads`
// threads: inputs, the outputs of hipnorm and aten, rows and column sums in fp64 for each thread.
// Saturates.
std::int64_t needed_bytes(const Shape& shape, DType dtype, bool with_dy, int threads);

}  // namespace hipnorm::bench
