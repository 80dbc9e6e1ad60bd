// The numbers of a cell, in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/dispatch/table.h"
#include "tests/reference/reference.h"

namespace hipnorm::tune {

// x = −2.3 + 0.5·randn, dy, weight, bias = randn, rounded to their dtypes; contiguous. Where there
// are rows enough, row 1 of x has a mean of 1000, row 2 is constant; row 3 holds a NaN and row 4 an
// Inf: for a forward in x, for a backward in dy, where they spoil those rows of dX and two columns
// of dW and dB (in x they would spoil dW from end to end, and nobody could judge it), if there are
// eight columns. Backward: mean and rstd of x. Depends on the cell alone.
struct Inputs {
  static constexpr std::int64_t kFirstBadRow = 3, kBadRows = 2;
  static constexpr std::int64_t kLeastColsOfBadGradients = 8;

  Inputs(const TableKey& cell, int threads);
  reference::ForwardInputs forward() const;
  reference::BackwardInputs backward() const;

  Problem problem;
  double eps = 1e-5;
  std::vector<char> x, dy, weight, bias, mean, rstd;
  // Without NaN and Inf, what kernels are timed on in the place of those rows. Empty: there are
  // none.
  std::vector<char> ordinary_rows;
};

}  // namespace hipnorm::tune
