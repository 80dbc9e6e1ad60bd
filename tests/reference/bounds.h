// What results are allowed, as two arrays in the results' own dtype: for a judge that can only
// compare, such as a kernel that checks a result where it lies on a GPU. The same truth and the
// same tolerances as judge.h.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/reference/reference.h"

namespace hipnorm::reference {

// A value is right when low ≤ value ≤ high. Where low is NaN the truth is: `nan` says what the
// value has to be then. Where low > high the truth is infinite: what is not finite is right. From
// −Inf to Inf anything but NaN is.
struct Bounds {
  enum class Nan { must_be_nan, must_not_be_finite };
  DType dtype = DType::none;
  Nan nan = Nan::must_not_be_finite;
  std::vector<char> low, high;
};

struct ForwardBounds {
  Bounds y;           // [rows · cols] of x's dtype
  Bounds mean, rstd;  // [rows] of the accumulate type
};
struct BackwardBounds {
  Bounds dx;              // [rows · cols] of x's dtype
  Bounds dweight, dbias;  // [cols] of the weight's dtype
};
// For f16, bf16 and f32. The rows are shared by `threads` threads.
ForwardBounds forward_bounds(const ForwardInputs& in, int threads);
BackwardBounds backward_bounds(const BackwardInputs& in, DType weight, int threads);

}  // namespace hipnorm::reference
