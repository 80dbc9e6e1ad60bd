#include "csrc/target.h"

#include <c10/util/Exception.h>

#include <stdexcept>

#include "csrc/parallel.h"

namespace hipnorm {
namespace {

template <class F>
auto refusals_as_value_errors(const F& call) {
  try {
    return call();
  } catch (const std::invalid_argument& refusal) {
    TORCH_CHECK_VALUE(false, refusal.what());
  }
}

}  // namespace

Target target_of(c10::Device device) {
  TORCH_CHECK_NOT_IMPLEMENTED(device.is_cpu(), "hipnorm: expected tensors on the CPU, the only ",
                              "device that this build has kernels for, but got ", device);
  const Device* cpu = refusals_as_value_errors([] { return &cpu_device(torch_threads()); });
  return {.device = *cpu, .parallel_for = torch_parallel_for};
}

Selection selection_for(const Problem& problem, const Device& device) {
  return refusals_as_value_errors([&] { return select(problem, device); });
}

}  // namespace hipnorm
