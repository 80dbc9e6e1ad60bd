// Threads: the same number gives the same bits again; any number gives the right result; a config
// decides the order of every sum, so with a config fixed the number of threads changes nothing.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "csrc/hipnorm.h"
#include "tests/operators/check.h"

namespace hipnorm::testing {
namespace {

// Sets torch's number of threads for a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

const std::vector<Shape> kShapes = {{1, 65536}, {2, 103008}, {64, 4097}, {3000, 96}, {512, 256}};

TEST(OperatorThreads, RepeatBitForBitAndAreRightForAnyCount) {
  for (const at::ScalarType dtype : kDTypes) {
    for (const Shape& shape : kShapes) {
      const Call call = make_call(shape, 1, dtype, dtype);
      const at::Tensor grad = at::randn(shape, at::kDouble).to(dtype);
      for (const int count : {1, 2, 3}) {
        SCOPED_TRACE(c10::str(count, " threads, ", call.input.toString(), shape));
        const Threads threads(count);
        const Tensors3 first = run_forward(call);
        EXPECT_TRUE(identical(first, run_forward(call)));
        const auto forward_verdict = judge(call, first);
        EXPECT_TRUE(forward_verdict.ok()) << forward_verdict.describe();
        for (const std::string& op : kBackwardOps) {
          const Tensors3 grads = run_backward(call, grad, op);
          EXPECT_TRUE(identical(grads, run_backward(call, grad, op))) << op;
          const auto verdict = judge(call, grad, grads);
          EXPECT_TRUE(verdict.ok()) << op << ": " << verdict.describe();
        }
      }
    }
  }
}

TEST(OperatorThreads, AFixedConfigGivesTheSameBitsForAnyCount) {
  const Call call = make_call({61, 1000});
  const at::Tensor grad = at::randn({61, 1000});
  const auto [y, mean, rstd] = run_forward(call);
  for (const char* config :
       {"forward=cpu_forward_row:vec_bytes=16,parts=3,stream=0;"
        "backward=cpu_backward_row:rows_per_block=2,vec_bytes=16,parts=3,stream=0",
        "forward=cpu_forward_split:vec_bytes=16,split=3,stream=1;"
        "backward=cpu_backward_two_kernel:rows_per_block=2,vec_bytes=16,split=3,parts=2,stream=1",
        "forward=cpu_forward_split:vec_bytes=16,split=16,stream=0;"
        "backward=cpu_backward_sums_first:rows_per_block=1,vec_bytes=16,split=4,parts=2,stream="
        "0"}) {
    SCOPED_TRACE(config);
    const ScopedForcedConfig forced(config);
    std::vector<Tensors3> forwards, backwards;
    for (const int count : {1, 2, 3}) {
      const Threads threads(count);
      forwards.push_back(run_forward(call));
      backwards.push_back(call_backward("layer_norm_backward", grad, call.input, {1000}, mean, rstd,
                                        call.weight, call.bias));
      EXPECT_TRUE(identical(forwards.back(), forwards.front())) << count << " threads";
      EXPECT_TRUE(identical(backwards.back(), backwards.front())) << count << " threads";
    }
  }
}

// Inside a parallel region torch's threads are taken: the operator runs on its own.
TEST(OperatorThreads, InsideAParallelRegion) {
  const Threads threads(2);
  const Call call = make_call({64, 4097});
  std::vector<Tensors3> results(4);
  at::parallel_for(0, 4, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      results[static_cast<std::size_t>(i)] = run_forward(call);
    }
  });
  for (const Tensors3& result : results) {
    const auto verdict = judge(call, result);
    EXPECT_TRUE(verdict.ok()) << verdict.describe();
  }
}

// Callers on threads of their own, each with problems that the others have not seen.
TEST(OperatorThreads, ConcurrentCallers) {
  std::vector<std::thread> callers;
  std::vector<std::string> wrong(4);
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([t, &wrong] {
      for (std::int64_t i = 0; i < 40; ++i) {
        const Call call = make_call({1 + i % 7, 100 + 41 * i + t});
        const at::Tensor grad = at::randn(call.input.sizes());
        const auto forward = judge(call, run_forward(call));
        const auto backward = judge(call, grad, run_backward(call, grad));
        if (!forward.ok()) wrong[static_cast<std::size_t>(t)] = forward.describe();
        if (!backward.ok()) wrong[static_cast<std::size_t>(t)] = backward.describe();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace hipnorm::testing
