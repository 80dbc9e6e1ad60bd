// From an operation to the set of kernels for its device.
#include "kernels/launch.h"

#include "kernels/backends.h"

namespace hipnorm {

Error launch_forward(const ForwardArgs& args, const Launch& launch) {
  return launch.device.kind == DeviceKind::cpu ? cpu::launch_forward(args, launch)
                                               : gpu::launch_forward(args, launch);
}

Error launch_backward(const BackwardArgs& args, const Launch& launch) {
  return launch.device.kind == DeviceKind::cpu ? cpu::launch_backward(args, launch)
                                               : gpu::launch_backward(args, launch);
}

}  // namespace hipnorm
