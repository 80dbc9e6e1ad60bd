// The two sets of kernels behind launch.h, and what they share.
#pragma once

#include <string>

#include "kernels/launch.h"

namespace hipnorm {

inline std::string failure(const Launch& launch, const std::string& reason) {
  return to_string(launch.config) + " cannot run " + to_string(launch.problem) + " on " +
         launch.device.arch + ": " + reason;
}

namespace cpu {
Error launch_forward(const ForwardArgs& args, const Launch& launch);
Error launch_backward(const BackwardArgs& args, const Launch& launch);
}  // namespace cpu

namespace gpu {
Error launch_forward(const ForwardArgs& args, const Launch& launch);
Error launch_backward(const BackwardArgs& args, const Launch& launch);
}  // namespace gpu

}  // namespace hipnorm
