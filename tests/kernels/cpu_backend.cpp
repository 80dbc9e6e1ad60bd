// The CPU kernels, as two threads use them.
#include <iterator>

#include "tests/kernels/backend.h"
#include "tests/kernels/parallel.h"

namespace hipnorm::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__)  // what is written where does not depend on the order
constexpr ParallelFor kOrders[] = {on_two_threads};
#else
constexpr ParallelFor kOrders[] = {in_order, in_reverse, on_two_threads};
#endif

Launch in_way(const Launch& launch, int way) {
  return {.problem = launch.problem,
          .device = launch.device,
          .config = launch.config,
          .plan = launch.plan,
          .parallel_for = kOrders[way]};
}

}  // namespace

const Device& device() { return cpu_device(2); }
bool emulated() { return false; }
int ways() { return static_cast<int>(std::size(kOrders)); }

Mirror::Mirror(const Array& array, Contents) : data_(const_cast<void*>(array.data())) {}
Mirror::~Mirror() = default;
void Mirror::fetch(Array&) const {}

Error run_forward_launch(const ForwardArgs& args, const Launch& launch, int way) {
  return launch_forward(args, in_way(launch, way));
}
Error run_backward_launch(const BackwardArgs& args, const Launch& launch, int way) {
  return launch_backward(args, in_way(launch, way));
}

}  // namespace hipnorm::testing
