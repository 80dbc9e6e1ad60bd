#include "csrc/torch_version.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <cstdint>

namespace hipnorm {

std::optional<std::string> torch_version_mismatch() {
  // One byte each: major, minor, patch, …, from the top (TORCH_ABI_VERSION). The function is
  // exported by libtorch_cpu and answers for the library that is loaded.
  const std::uint64_t running = aoti_torch_abi_version();
  const std::uint64_t running_major = running >> 56;
  const std::uint64_t running_minor = (running >> 48) & 0xff;
  if (running_major == TORCH_VERSION_MAJOR && running_minor == TORCH_VERSION_MINOR) {
    return std::nullopt;
  }
  return "hipnorm was built for torch " + std::to_string(TORCH_VERSION_MAJOR) + "." +
         std::to_string(TORCH_VERSION_MINOR) + ", but runs in torch " +
         std::to_string(running_major) + "." + std::to_string(running_minor) +
         ": build it again against the torch that you use";
}

}  // namespace hipnorm
