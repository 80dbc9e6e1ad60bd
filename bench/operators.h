// The calls that are compared: hipnorm's operators, aten's, and the copy that sets the limit. Each
// allocates its outputs, the limit excepted.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>

#include "bench/inputs.h"
#include "bench/options.h"

namespace hipnorm::bench {

// forward: y [M, N], mean [M, 1], rstd [M, 1]; backward: dX [M, N], dW [N], dB [N].
using Outputs = std::array<at::Tensor, 3>;

// mean and rstd as the same side's forward returns them.
struct Statistics {
  at::Tensor mean;
  at::Tensor rstd;
};

Outputs hipnorm_forward(const Inputs& inputs);
Outputs hipnorm_backward(const Inputs& inputs, const Statistics& statistics);
Outputs aten_forward(const Inputs& inputs);
Outputs aten_backward(const Inputs& inputs, const Statistics& statistics);

// forward: out = x; backward: out = x + dy. out: as x.
void limit(const Inputs& inputs, Direction direction, at::Tensor& out);

// What hipnorm runs for these inputs, and why.
struct Selected {
  std::string config;
  std::string source;
};
Selected selected_config(const Inputs& inputs, Direction direction);

}  // namespace hipnorm::bench
