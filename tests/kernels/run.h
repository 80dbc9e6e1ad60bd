// Runs kernels and checks what every run owes, whatever the test: no error, nothing written outside
// its outputs and its workspace, the same bits in any order of the tasks, and the right values.
#pragma once

#include <span>
#include <vector>

#include "kernels/launch.h"
#include "tests/kernels/layer_data.h"
#include "tests/reference/judge.h"

namespace hipnorm::testing {

// The device of all tests: this processor, as two threads use it.
const Device& device();

struct ForwardResult {
  Array y, mean, rstd;
};
// Arrays of gradients that the mask leaves out are empty.
struct BackwardResult {
  Array dx, dweight, dbias;
};

// One run on fresh outputs and a fresh workspace, all NaN, of exactly the planned size.
ForwardResult run_forward(const LayerData& data, Affine affine, const Config& config,
                          ParallelFor parallel_for);
BackwardResult run_backward(Op op, const LayerData& data, Affine affine, GradMask grads,
                            const Config& config, ParallelFor parallel_for);

// Every config in order, in reverse and on two threads; all three must agree bit for bit. Returns
// the results, judged.
std::vector<ForwardResult> check_forward(const LayerData& data, Affine affine,
                                         std::span<const Config> configs);
std::vector<BackwardResult> check_backward(Op op, const LayerData& data, Affine affine,
                                           GradMask grads, std::span<const Config> configs);

}  // namespace hipnorm::testing
