// What stands for this folder in a build without GPU kernels.
#include <stdexcept>

#include "kernels/backends.h"

namespace hipnorm {
namespace {

constexpr const char* kReason = "this build of hipnorm has no GPU kernels";

}  // namespace

const Device& gpu_device(int) { throw std::invalid_argument(kReason); }
bool has_gpu_kernels() { return false; }

namespace gpu {

Error launch_forward(const ForwardArgs&, const Launch& launch) { return failure(launch, kReason); }
Error launch_backward(const BackwardArgs&, const Launch& launch) {
  return failure(launch, kReason);
}

}  // namespace gpu
}  // namespace hipnorm
