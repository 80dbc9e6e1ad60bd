// Runs kernels and checks what every run owes, whatever the test: no error, nothing written outside
// its outputs and its workspace, the same bits in every way of running, and the right values.
#pragma once

#include <span>
#include <vector>

#include "tests/kernels/backend.h"
#include "tests/kernels/layer_data.h"
#include "tests/reference/judge.h"

namespace hipnorm::testing {

struct ForwardResult {
  Array y, mean, rstd;
};
// Arrays of gradients that the mask leaves out are empty.
struct BackwardResult {
  Array dx, dweight, dbias;
};

// One run, in way number `way`, on fresh outputs and a fresh workspace, all NaN, of exactly the
// planned size.
ForwardResult run_forward(const LayerData& data, Affine affine, const Config& config, int way);
BackwardResult run_backward(Op op, const LayerData& data, Affine affine, GradMask grads,
                            const Config& config, int way);
// The same with a plan of the caller's.
BackwardResult run_backward(const Problem& problem, const Plan& plan, const LayerData& data,
                            Affine affine, const Config& config, int way);

// Every config in all ways(), which must agree bit for bit. Returns the results, judged.
std::vector<ForwardResult> check_forward(const LayerData& data, Affine affine,
                                         std::span<const Config> configs);
std::vector<BackwardResult> check_backward(Op op, const LayerData& data, Affine affine,
                                           GradMask grads, std::span<const Config> configs);

}  // namespace hipnorm::testing
