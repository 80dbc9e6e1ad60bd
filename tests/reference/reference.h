// LayerNorm in higher precision, by plain loops: what is true, whatever a kernel says.
//
// Arithmetic is double; for f64 input long double (on x86: 64 bits of mantissa against 53). Inputs
// are typed arrays as the kernels get them, read exactly; an array of doubles is one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/dispatch/problem.h"

namespace hipnorm::reference {

// Element (r, c) is data[r·stride + c]; stride in elements, 0 repeats one row. Null: absent.
struct Matrix {
  DType dtype = DType::none;
  const void* data = nullptr;
  std::int64_t stride = 0;
};
struct Vector {
  DType dtype = DType::none;
  const void* data = nullptr;
};

// x: [rows, cols]; weight, bias: [cols], each may be absent.
struct ForwardInputs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Matrix x;
  Vector weight;
  Vector bias;
  double eps = 1e-5;
};

// dy, x: [rows, cols], of one dtype; weight: [cols] or absent. mean, rstd: [rows], taken as exact
// inputs (what one kernel is asked); absent, they are those of x (what a user wants).
struct BackwardInputs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Matrix dy;
  Matrix x;
  Vector weight;
  Vector mean;
  Vector rstd;
  double eps = 1e-5;
};

// The rules at the edges:
//  - a row with Inf or NaN has mean, rstd and y NaN;
//  - a row whose variance lies beyond the accumulate type (f32; f64 for f64) has rstd = 0, y =
//  bias;
//  - rstd = 0 means x̂ = 0; so does a variance of exactly 0 (constant rows, N = 1), whatever eps is.
struct ForwardTruth {
  std::vector<double> y;     // [rows · cols]
  std::vector<double> mean;  // [rows]
  std::vector<double> rstd;  // [rows]
};
ForwardTruth forward(const ForwardInputs& in);

struct BackwardTruth {
  std::vector<double> dx;                 // [rows · cols]
  std::vector<double> dweight;            // [cols] Σdy·x̂
  std::vector<double> dbias;              // [cols] Σdy
  std::vector<double> dweight_magnitude;  // [cols] Σ|dy·x̂|
  std::vector<double> dbias_magnitude;    // [cols] Σ|dy|
};
BackwardTruth backward(const BackwardInputs& in);

}  // namespace hipnorm::reference
