// Bad calls: the message says what was expected and what came, and nothing was allocated, so
// nothing was computed.
#include <c10/core/impl/FakeGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

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

#ifdef HIPNORM_TEST_WITHOUT_GPU_KERNELS
// A device that torch finds for `type` for as long as this lives, whatever it was built for.
class PretendedDevice {
 public:
  explicit PretendedDevice(c10::DeviceType type)
      : slot_(c10::impl::device_guard_impl_registry.at(static_cast<std::size_t>(type))) {
    // Leaked, as torch wants guards to be: they have no destructor.
    static const auto* const fake = new c10::impl::FakeGuardImpl<c10::kCUDA>;
    before_ = slot_.exchange(fake);
  }
  ~PretendedDevice() { slot_ = before_; }
  PretendedDevice(const PretendedDevice&) = delete;
  PretendedDevice& operator=(const PretendedDevice&) = delete;

 private:
  std::atomic<const c10::impl::DeviceGuardImplInterface*>& slot_;
  const c10::impl::DeviceGuardImplInterface* before_;
};

// What a library of CPU kernels answers to a torch that has a GPU. The tensors only say that they
// lie there: nothing may read them.
TEST(Errors, TensorsOnAGpuThatThisBuildHasNoKernelsFor) {
  const PretendedDevice device(c10::kCUDA);
  std::vector<float> memory(24);
  const auto on_gpu = [&](at::IntArrayRef sizes) {
    const c10::Device gpu(c10::kCUDA, 0);
    return at::for_blob(memory.data(), sizes).options(gpu).target_device(gpu).make_tensor();
  };
  const at::Tensor x = on_gpu({4, 6}), statistic = on_gpu({4, 1});
  ASSERT_TRUE(x.is_cuda());
  const std::vector<std::string> message = {
      "hipnorm: expected tensors on the CPU, the only device that this build has kernels for, but "
      "got cuda:0"};
  expect_refused([&] { call_layer_norm(x, {6}); }, message);
  expect_refused([&] { call_forward(x, {6}); }, message);
  expect_refused([&] { call_selected_config("forward", x, {6}); }, message);
  for (const std::string& op : kBackwardOps) {
    expect_refused([&] { call_backward(op, x, x, {6}, statistic, statistic); }, message);
  }
}
#endif

// A forced config that does not parse is refused where it is given; one that cannot run a shape at
// the call, with its name, its fault and the problem.
TEST(Errors, ForcedConfigs) {
  struct BadText {
    const char* text;
    std::vector<std::string> message;  // each a part of it
  };
  for (const auto& [text, message] : std::vector<BadText>{
           {"forward", {"expected op=config", "'forward'"}},
           {"forward=", {"'' is no variant of forward", "cpu_forward_row, cpu_forward_split"}},
           {"forward=no_such_kernel", {"'no_such_kernel' is no variant of forward"}},
           {"sideways=cpu_forward_row", {"unknown op 'sideways'", "backward_two_kernel"}},
           {"forward=cpu_forward_row:9", {"expected field=value after cpu_forward_row", "'9'"}},
           {"forward=cpu_forward_row:speed=9", {"no field 'speed'", "rows_per_block, vec_bytes"}},
           {"forward=cpu_forward_row:parts=x", {"parts must be an integer", "'x'"}},
           {"forward=cpu_forward_row:parts=1,parts=2", {"field 'parts' is given twice"}},
           {"forward=cpu_forward_row;forward=cpu_forward_split", {"'forward' is named twice"}},
           {"forward=cpu_backward_row",
            {"'cpu_backward_row' is no variant of forward", "cpu_forward_row"}},
           {"backward_fused=cpu_backward_sums_first",
            {"'cpu_backward_sums_first' is no variant of backward_fused", "cpu_backward_row"}}}) {
    SCOPED_TRACE(text);
    try {
      const ScopedForcedConfig forced(text);
      ADD_FAILURE() << "accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(c10::str("forced config '", text, "': ")));
      for (const std::string& part : message) EXPECT_THAT(error.what(), HasSubstr(part));
    }
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
