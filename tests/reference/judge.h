// Is this result right? Walks the rows once, keeps none of them: 10⁹ elements need no more memory
// than a few rows per thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/reference/reference.h"

namespace hipnorm::reference {

// The worst element of one output. A value is right when |got − want| ≤ bound (tolerance.h).
// Where the truth is NaN, y and rstd must be NaN, mean and gradients not finite; where it is
// infinite, the result must not be finite; beyond the output type's range infinity is right.
struct Verdict {
  double worst = 0;  // |got − want| ÷ bound; infinite for a finite value where none may be, …
  std::int64_t row = -1;
  std::int64_t col = -1;  // -1 in both: no element, or all exact
  double got = 0;
  double want = 0;
  double bound = 0;
  bool ok() const { return worst <= 1; }
  // "1.7 × the bound at (3, 17): got 0.5, want 0.25, bound 0.147"
  std::string describe() const;
};

// Outputs whose data is null are not judged (their verdict is ok).
struct ForwardOutputs {
  Matrix y;     // [rows, cols]
  Vector mean;  // [rows]
  Vector rstd;  // [rows]
};
struct ForwardVerdict {
  Verdict y, mean, rstd;
  bool ok() const { return y.ok() && mean.ok() && rstd.ok(); }
  double worst() const;
  std::string describe() const;  // the outputs that are wrong
};

struct BackwardOutputs {
  Matrix dx;       // [rows, cols]
  Vector dweight;  // [cols], in their own dtype, which sets the rounding allowed
  Vector dbias;
};
struct BackwardVerdict {
  Verdict dx, dweight, dbias;
  bool ok() const { return dx.ok() && dweight.ok() && dbias.ok(); }
  double worst() const;
  std::string describe() const;
};

// Several results of the same inputs are judged in one walk: the truth is formed once. The rows are
// shared by `threads` threads. The mean of a row whose variance overflows is not judged: nothing
// depends on it.
std::vector<ForwardVerdict> judge_forward(const ForwardInputs& in,
                                          std::span<const ForwardOutputs> results, int threads = 1);
ForwardVerdict judge_forward(const ForwardInputs& in, const ForwardOutputs& result,
                             int threads = 1);
std::vector<BackwardVerdict> judge_backward(const BackwardInputs& in,
                                            std::span<const BackwardOutputs> results,
                                            int threads = 1);
BackwardVerdict judge_backward(const BackwardInputs& in, const BackwardOutputs& result,
                               int threads = 1);

}  // namespace hipnorm::reference
