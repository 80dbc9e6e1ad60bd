#include "csrc/target.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <stdexcept>

#include "csrc/dispatch/table.h"
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

const Device& gpu_of(c10::Device device) {
  try {
    return gpu_device(device.index());
  } catch (const std::exception& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "hipnorm: ", device, ": ", error.what());
  }
}

}  // namespace

Target target_of(c10::Device device) {
  if (device.is_cpu()) {
    const Device* cpu = refusals_as_value_errors([] { return &cpu_device(torch_threads()); });
    return {.device = *cpu, .parallel_for = torch_parallel_for};
  }
  // ROCm builds of torch call their devices and dispatch key CUDA, too.
  TORCH_CHECK_NOT_IMPLEMENTED(
      device.is_cuda() && has_gpu_kernels(), "hipnorm: expected tensors on the CPU",
      has_gpu_kernels() ? " or on a CUDA device"
                        : ", the only device that this build has kernels for",
      ", but got ", device);
  // c10's generic interface, so that no library of torch's that knows a GPU has to be linked.
  const c10::Stream stream = c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
  return {.device = gpu_of(device), .stream = stream.native_handle()};
}

Selection selection_for(const Problem& problem, const Device& device) {
  return refusals_as_value_errors([&] {
    Selection selection = select(problem, device);
    [[maybe_unused]] static const bool told = [] {  // rows of tables that were left out, once
      for (const Table* table : tables()) {
        for (const std::string& line : table->complaints()) TORCH_WARN("hipnorm: ", line);
      }
      return true;
    }();
    return selection;
  });
}

}  // namespace hipnorm
