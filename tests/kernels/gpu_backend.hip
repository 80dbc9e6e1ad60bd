// The GPU kernels on the first GPU.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/gpu/platform.h"
#include "tests/kernels/backend.h"

namespace hipnorm::testing {
namespace {

void check(hipError_t error, const char* what) {
  if (error != hipSuccess) {
    throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(error));
  }
}

hipStream_t stream() {
  static const hipStream_t value = [] {
    hipStream_t created = nullptr;
    check(hipStreamCreate(&created), "a stream");
    return created;
  }();
  return value;
}

Launch on_stream(const Launch& launch) {
  return {.problem = launch.problem,
          .device = launch.device,
          .config = launch.config,
          .plan = launch.plan,
          .parallel_for = nullptr,
          .stream = stream()};
}

bool exact_memory() {
  static const bool exact = [] {
    const char* value = std::getenv("HIPNORM_TEST_EXACT_MEMORY");
    return value != nullptr && std::string(value) == "1";
  }();
  return exact;
}

Error finished(Error error) {
  if (!error) {
    const hipError_t status = hipStreamSynchronize(stream());
    if (status != hipSuccess) error = std::string("while it ran: ") + hipGetErrorString(status);
  }
  return error;
}

}  // namespace

const Device& device() { return gpu_device(0); }
bool emulated() { return false; }
int ways() { return 3; }

Mirror::Mirror(const Array& array, Contents contents) {
  if (array.block() == nullptr) return;
  if (exact_memory()) {
    fetched_ = contents != Contents::scratch;
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(array.data()) % 64;
    const auto bytes = static_cast<std::size_t>(array.bytes());
    check(hipMalloc(&block_, offset + bytes), "memory for an array");
    data_ = static_cast<char*>(block_) + offset;
    if (contents == Contents::copied && bytes > 0) {
      check(hipMemcpy(data_, array.data(), bytes, hipMemcpyHostToDevice), "an upload");
    }
    return;
  }
  const auto bytes = static_cast<std::size_t>(array.block_bytes());
  check(hipMalloc(&block_, bytes), "memory for an array");
  check(hipMemcpy(block_, array.block(), bytes, hipMemcpyHostToDevice), "an upload");
  data_ = static_cast<char*>(block_) +
          (static_cast<const char*>(array.data()) - static_cast<const char*>(array.block()));
}
Mirror::~Mirror() { static_cast<void>(hipFree(block_)); }
void Mirror::fetch(Array& array) const {
  if (block_ == nullptr) return;
  if (exact_memory()) {
    if (!fetched_) return;
    check(hipMemcpy(array.data(), data_, static_cast<std::size_t>(array.bytes()),
                    hipMemcpyDeviceToHost),
          "a download");
    return;
  }
  check(hipMemcpy(array.block(), block_, static_cast<std::size_t>(array.block_bytes()),
                  hipMemcpyDeviceToHost),
        "a download");
}

Error run_forward_launch(const ForwardArgs& args, const Launch& launch, int) {
  return finished(launch_forward(args, on_stream(launch)));
}
Error run_backward_launch(const BackwardArgs& args, const Launch& launch, int) {
  return finished(launch_backward(args, on_stream(launch)));
}

}  // namespace hipnorm::testing
