// The numbers of a cell, in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/dispatch/table.h"
#include "tests/reference/reference.h"

namespace hipnorm::tune {

// x = −2.3 + 0.5·randn, dy, weight, bias = randn, rounded to their dtypes; contiguous. Where there
// are rows enough, row 1 has a mean of 1000, row 2 is constant, and for a forward row 3 holds a NaN
// and row 4 an Inf. Backward: mean and rstd of x. Depends on the cell alone.
struct Inputs {
  explicit Inputs(const TableKey& cell, int threads);
  reference::ForwardInputs forward() const;
  reference::BackwardInputs backward() const;
  // Puts rows without NaN and Inf in the place of those two; the next call puts them back.
  void swap_ordinary_rows();

  Problem problem;
  double eps = 1e-5;
  std::vector<char> x, dy, weight, bias, mean, rstd;
  std::vector<char> ordinary_rows;
};

}  // namespace hipnorm::tune
