// Bad calls: the message says what was expected and what came, and nothing was allocated, so
// nothing was computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "csrc/hipnorm.h"
#include "tests/operators/check.h"
#include "tests/operators/counting_allocator.h"

namespace hipnorm::testing {
namespace {

using ::testing::HasSubstr;

// Arguments of any of the operators, right ones to start with.
struct Arguments {
  at::Tensor input = at::randn({4, 6});
  Shape normalized_shape = {6};
  MaybeTensor weight = at::randn({6});
  MaybeTensor bias = at::randn({6});
  at::Tensor grad_output = at::randn({4, 6});
  at::Tensor mean = at::zeros({4, 1});
  at::Tensor rstd = at::ones({4, 1});
};

struct BadCall {
  const char* name;
  void (*spoil)(Arguments& arguments);
  std::vector<std::string> message;  // each a part of it
  bool backward_only = false;
};

const std::vector<BadCall> kBadCalls = {
    {"weight of another shape",
     [](Arguments& a) { a.weight = at::ones({5}); },
     {"weight", "same shape as normalized_shape", "[5]", "[6]"}},
    {"weight of another rank",
     [](Arguments& a) { a.weight = at::ones({1, 6}); },
     {"weight", "[1, 6]", "[6]"}},
    {"bias of another shape",
     [](Arguments& a) { a.bias = at::ones({7}); },
     {"bias", "same shape as normalized_shape", "[7]", "[6]"}},
    {"weight of a dtype that is neither",
     [](Arguments& a) { a.weight = at::ones({6}, at::kHalf); },
     {"weight", "Float", "Half"}},
    {"bias of another dtype",
     [](Arguments& a) { a.bias = at::ones({6}, at::kDouble); },
     {"bias", "Float", "Double"}},
    {"weight and bias of two dtypes",
     [](Arguments& a) {
       a.input = a.input.to(at::kBFloat16);
       a.grad_output = a.grad_output.to(at::kBFloat16);
       a.weight = a.weight->to(at::kBFloat16);
     },
     {"weight and bias", "BFloat16", "Float"}},
    {"normalized_shape empty",
     [](Arguments& a) { a.normalized_shape = {}; },
     {"normalized_shape to be at least 1-dimensional", "[]"}},
    {"normalized_shape not the last sizes",
     [](Arguments& a) { a.normalized_shape = {4}; },
     {"normalized_shape=[4]", "[*, 4]", "[4, 6]"}},
    {"normalized_shape longer than the input",
     [](Arguments& a) { a.normalized_shape = {1, 4, 6}; },
     {"normalized_shape=[1, 4, 6]", "[*, 1, 4, 6]", "[4, 6]"}},
    {"normalized_shape negative",
     [](Arguments& a) { a.normalized_shape = {-6}; },
     {"normalized_shape=[-6]", "[4, 6]"}},
    {"input without dimensions",
     [](Arguments& a) { a.input = at::randn({}); },
     {"normalized_shape=[6]", "[*, 6]", "[]"}},
    {"integer input",
     [](Arguments& a) { a.input = at::ones({4, 6}, at::kLong); },
     {"Float, Half, BFloat16 or Double", "Long"}},
    {"complex input",
     [](Arguments& a) { a.input = at::ones({4, 6}, at::kComplexFloat); },
     {"Float, Half, BFloat16 or Double", "ComplexFloat"}},
    {"boolean input",
     [](Arguments& a) { a.input = at::ones({4, 6}, at::kBool); },
     {"Float, Half, BFloat16 or Double", "Bool"}},
    {"weight on another device",
     [](Arguments& a) { a.weight = at::empty({6}, at::TensorOptions(at::kMeta)); },
     {"weight", "cpu", "meta"}},
    {"gradient of another shape",
     [](Arguments& a) { a.grad_output = at::ones({6, 4}); },
     {"grad_output", "[4, 6]", "[6, 4]"},
     true},
    {"gradient of another dtype",
     [](Arguments& a) { a.grad_output = a.grad_output.to(at::kDouble); },
     {"grad_output", "Float", "Double"},
     true},
    {"too few means", [](Arguments& a) { a.mean = at::zeros({3}); }, {"mean", "4", "[3]"}, true},
    {"too many rstds",
     [](Arguments& a) { a.rstd = at::ones({4, 6}); },
     {"rstd", "4", "[4, 6]"},
     true},
    {"mean of another dtype",
     [](Arguments& a) { a.mean = at::zeros({4}, at::kHalf); },
     {"mean", "Float", "Half"},
     true},
    {"rstd of integers",
     [](Arguments& a) { a.rstd = at::ones({4}, at::kLong); },
     {"rstd", "Float", "Long"},
     true},
};

// Runs `call`, which must fail with all parts of the message, before it allocates a tensor.
template <class F>
void expect_refused(F call, const std::vector<std::string>& message) {
  const AllocationCount count;
  try {
    call();
    ADD_FAILURE() << "accepted";
    return;
  } catch (const std::exception& error) {
    EXPECT_EQ(count.calls(), 0) << "allocated " << count.bytes() << " bytes before it refused";
    for (const std::string& part : message) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Errors, BadCallsAreRefusedBeforeAnythingIsDone) {
  for (const BadCall& bad : kBadCalls) {
    SCOPED_TRACE(bad.name);
    Arguments a;
    bad.spoil(a);
    if (!bad.backward_only) {
      expect_refused([&] { call_layer_norm(a.input, a.normalized_shape, a.weight, a.bias); },
                     bad.message);
      expect_refused([&] { call_forward(a.input, a.normalized_shape, a.weight, a.bias); },
                     bad.message);
    }
    for (const std::string& op : kBackwardOps) {
      SCOPED_TRACE(op);
      expect_refused(
          [&] {
            call_backward(op, a.grad_output, a.input, a.normalized_shape, a.mean, a.rstd, a.weight,
                          a.bias);
          },
          bad.message);
    }
  }
}

// The table above is of single faults: without one, everything is accepted.
TEST(Errors, TheArgumentsThemselvesAreRight) {
  const Arguments a;
  call_layer_norm(a.input, a.normalized_shape, a.weight, a.bias);
  for (const std::string& op : kBackwardOps) {
    call_backward(op, a.grad_output, a.input, a.normalized_shape, a.mean, a.rstd, a.weight, a.bias);
  }
}

TEST(Errors, SelectedConfigNamesTheOps) {
  const at::Tensor x = at::randn({2, 3});
  expect_refused([&] { call_selected_config("sideways", x, {3}); },
                 {"sideways", "backward_two_kernel"});
}

// A forced config that does not parse is refused where it is given; one that cannot run a shape at
// the call, with its name, its fault and the problem.
TEST(Errors, ForcedConfigs) {
  for (const char* text :
       {"forward", "forward=", "forward=no_such_kernel", "sideways=cpu_forward_row",
        "forward=cpu_forward_row:speed=9", "forward=cpu_forward_row:parts=x",
        "forward=cpu_forward_row:parts=1,parts=2", "forward=cpu_backward_row",
        "backward_fused=cpu_backward_sums_first"}) {
    EXPECT_THROW(ScopedForcedConfig{text}, std::invalid_argument) << text;
  }
  const at::Tensor x = at::randn({4, 6});
  const ScopedForcedConfig forced(
      "forward=cpu_forward_row:parts=5;backward_fused=cpu_backward_row:parts=6");
  expect_refused([&] { call_layer_norm(x, {6}); }, {"cpu_forward_row", "parts=5", "4 rows"});
  expect_refused([&] { call_selected_config("forward", x, {6}); }, {"cpu_forward_row", "parts=5"});
  const at::Tensor statistic = at::ones({4});
  expect_refused(
      [&] { call_backward("layer_norm_backward_fused", x, x, {6}, statistic, statistic); },
      {"cpu_backward_row", "parts=6", "4 rows"});
  call_backward("layer_norm_backward_two_kernel", x, x, {6}, statistic, statistic);  // untouched
}

}  // namespace
}  // namespace hipnorm::testing
