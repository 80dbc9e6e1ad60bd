#include "tests/kernels/run.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace hipnorm::testing {
namespace {

using reference::BackwardOutputs;
using reference::BackwardVerdict;
using reference::ForwardOutputs;
using reference::ForwardVerdict;

// Of the plan's size, which is a multiple of 64 bytes, as elements of 8 bytes.
Array workspace_of(const Plan& plan) { return Array(DType::f64, plan.workspace_bytes / 8); }

std::string label(const Config& config, const Problem& problem) {
  return to_string(config) + " on " + to_string(problem);
}

void expect_guards(std::initializer_list<const Array*> arrays) {
  for (const Array* array : arrays) {
    EXPECT_TRUE(array->guards_intact())
        << "written outside of " << to_string(array->dtype()) << '[' << array->count() << ']';
  }
}

}  // namespace

ForwardResult run_forward(const LayerData& data, Affine affine, const Config& config, int way) {
  const Problem problem = data.problem(Op::forward, affine);
  const Plan sizes = plan(config, problem, device());
  const DType accumulate = accumulate_type(problem.x);
  EXPECT_EQ(sizes.workspace_bytes % 64, 0);
  ForwardResult result{Array(problem.x, data.rows * data.cols, data.offset),
                       Array(accumulate, data.rows), Array(accumulate, data.rows)};
  Array workspace = workspace_of(sizes);
  const Mirror x(data.x), weight(data.weight), bias(data.bias);
  constexpr auto kUnset = Mirror::Contents::unset;
  const Mirror y(result.y, kUnset), mean(result.mean, kUnset), rstd(result.rstd, kUnset);
  const Mirror scratch(workspace, Mirror::Contents::scratch);
  const Error error = run_forward_launch(
      {.x = x.data(),
       .x_stride = data.x_stride,
       .weight = affine.weight ? weight.data() : nullptr,
       .bias = affine.bias ? bias.data() : nullptr,
       .eps = data.eps,
       .y = y.data(),
       .mean = mean.data(),
       .rstd = rstd.data(),
       .workspace = scratch.data()},
      {.problem = problem, .device = device(), .config = config, .plan = sizes}, way);
  EXPECT_FALSE(error.has_value()) << error.value_or("");
  y.fetch(result.y);
  mean.fetch(result.mean);
  rstd.fetch(result.rstd);
  scratch.fetch(workspace);
  expect_guards({&result.y, &result.mean, &result.rstd, &workspace});
  return result;
}

BackwardResult run_backward(Op op, const LayerData& data, Affine affine, GradMask grads,
                            const Config& config, int way) {
  const Problem problem = data.problem(op, affine, grads);
  return run_backward(problem, plan(config, problem, device()), data, affine, config, way);
}

BackwardResult run_backward(const Problem& problem, const Plan& sizes, const LayerData& data,
                            Affine affine, const Config& config, int way) {
  const GradMask grads = problem.grads;
  EXPECT_EQ(sizes.workspace_bytes % 64, 0);
  BackwardResult result;
  if (grads.dx) result.dx = Array(problem.x, data.rows * data.cols, data.offset);
  const int weight_offset = data.offset == 0 ? 0 : size_of(problem.weight);
  if (grads.dweight) result.dweight = Array(problem.weight, data.cols, weight_offset);
  if (grads.dbias) result.dbias = Array(problem.weight, data.cols, weight_offset);
  Array workspace = workspace_of(sizes);
  const Mirror dy(data.dy), x(data.x), mean(data.mean), rstd(data.rstd), weight(data.weight);
  constexpr auto kUnset = Mirror::Contents::unset;
  const Mirror dx(result.dx, kUnset), dweight(result.dweight, kUnset), dbias(result.dbias, kUnset);
  const Mirror scratch(workspace, Mirror::Contents::scratch);
  const Error error = run_backward_launch(
      {.dy = dy.data(),
       .dy_stride = data.dy_stride,
       .x = x.data(),
       .x_stride = data.x_stride,
       .mean = mean.data(),
       .rstd = rstd.data(),
       .weight = affine.weight ? weight.data() : nullptr,
       .dx = dx.data(),
       .dweight = dweight.data(),
       .dbias = dbias.data(),
       .workspace = scratch.data()},
      {.problem = problem, .device = device(), .config = config, .plan = sizes}, way);
  EXPECT_FALSE(error.has_value()) << error.value_or("");
  dx.fetch(result.dx);
  dweight.fetch(result.dweight);
  dbias.fetch(result.dbias);
  scratch.fetch(workspace);
  expect_guards({&result.dx, &result.dweight, &result.dbias, &workspace});
  return result;
}

std::vector<ForwardResult> check_forward(const LayerData& data, Affine affine,
                                         std::span<const Config> configs) {
  // Every CPU variant takes every problem; a GPU variant may not (configs_for says so).
  EXPECT_TRUE(!configs.empty() || device().kind == DeviceKind::gpu);
  if (configs.empty()) return {};
  const Problem problem = data.problem(Op::forward, affine);
  std::vector<ForwardResult> results;
  std::vector<ForwardOutputs> outputs;
  for (const Config& config : configs) {
    SCOPED_TRACE(label(config, problem));
    results.push_back(run_forward(data, affine, config, 0));
    const ForwardResult& first = results.back();
    for (int way = 1; way < ways(); ++way) {
      const ForwardResult other = run_forward(data, affine, config, way);
      EXPECT_TRUE(first.y.same_bits(other.y)) << "y depends on the way of running";
      EXPECT_TRUE(first.mean.same_bits(other.mean)) << "mean depends on the way of running";
      EXPECT_TRUE(first.rstd.same_bits(other.rstd)) << "rstd depends on the way of running";
    }
    outputs.push_back({{first.y.dtype(), first.y.data(), data.cols},
                       {first.mean.dtype(), first.mean.data()},
                       {first.rstd.dtype(), first.rstd.data()}});
  }
  const std::vector<ForwardVerdict> verdicts =
      reference::judge_forward(data.forward_inputs(affine), outputs);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    EXPECT_TRUE(verdicts[i].ok()) << label(configs[i], problem) << '\n' << verdicts[i].describe();
  }
  return results;
}

std::vector<BackwardResult> check_backward(Op op, const LayerData& data, Affine affine,
                                           GradMask grads, std::span<const Config> configs) {
  // Every CPU variant takes every problem; a GPU variant may not (configs_for says so).
  EXPECT_TRUE(!configs.empty() || device().kind == DeviceKind::gpu);
  if (configs.empty()) return {};
  const Problem problem = data.problem(op, affine, grads);
  std::vector<BackwardResult> results;
  std::vector<BackwardOutputs> outputs;
  for (const Config& config : configs) {
    SCOPED_TRACE(label(config, problem));
    results.push_back(run_backward(op, data, affine, grads, config, 0));
    const BackwardResult& first = results.back();
    for (int way = 1; way < ways(); ++way) {
      const BackwardResult other = run_backward(op, data, affine, grads, config, way);
      EXPECT_TRUE(first.dx.same_bits(other.dx)) << "dX depends on the way of running";
      EXPECT_TRUE(first.dweight.same_bits(other.dweight)) << "dW depends on the way of running";
      EXPECT_TRUE(first.dbias.same_bits(other.dbias)) << "dB depends on the way of running";
    }
    outputs.push_back({{first.dx.dtype(), first.dx.data(), data.cols},
                       {first.dweight.dtype(), first.dweight.data()},
                       {first.dbias.dtype(), first.dbias.data()}});
  }
  const std::vector<BackwardVerdict> verdicts =
      reference::judge_backward(data.backward_inputs(affine), outputs);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    EXPECT_TRUE(verdicts[i].ok()) << label(configs[i], problem) << '\n' << verdicts[i].describe();
  }
  return results;
}

}  // namespace hipnorm::testing
