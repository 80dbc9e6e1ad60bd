// Correctness of both sides, by one judge and one table of tolerances (tests/reference).
#pragma once

#include <string>

#include "bench/inputs.h"
#include "bench/operators.h"

namespace hipnorm::bench {

struct Check {
  bool ok = false;
  double worst = 0;     // largest |got - want| ÷ bound of any element of any output
  std::string message;  // which output, where, got, want, bound; for a result that is wrong
};
struct Checks {
  Check hipnorm;
  Check aten;
};

// The truth is LayerNorm of x (and dy) in fp64. Every element is judged, by `threads` threads.
// Tensors on a GPU are copied to the CPU for it. Throws c10::Error where an output has not the
// shape or dtype that it should have.
Checks check_forward(const Inputs& inputs, const Outputs& hipnorm, const Outputs& aten,
                     int threads);
Checks check_backward(const Inputs& inputs, const Outputs& hipnorm, const Outputs& aten,
                      int threads);

}  // namespace hipnorm::bench
