#include "tests/emulator/host.h"

#include <cstdlib>
#include <cstring>

#include "tests/emulator/schedule.h"

const char* hipGetErrorString(hipError_t error) {
  const auto& fault = hipnorm::emulator::last_fault();
  if (fault && fault.error == error) return fault.message.c_str();
  switch (error) {
    case hipSuccess: return "no error";
    case hipErrorInvalidValue: return "invalid argument";
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorInvalidConfiguration: return "invalid configuration argument";
    case hipErrorLaunchFailure: return "unspecified launch failure";
    case hipErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    case hipErrorNotSupported: return "operation not supported";
  }
  return "unknown error";
}

hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;  // as the real one
  if (bytes > PTRDIFF_MAX - kAlignment) return hipErrorOutOfMemory;
  *pointer = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*pointer == nullptr) return hipErrorOutOfMemory;
  std::memset(*pointer, 0xff, bytes);
  return hipSuccess;
}
hipError_t hipFree(void* pointer) {
  std::free(pointer);
  return hipSuccess;
}

hipError_t hipMemcpy(void* target, const void* source, std::size_t bytes, hipMemcpyKind) {
  if (bytes > 0) std::memmove(target, source, bytes);
  return hipSuccess;
}
hipError_t hipMemcpyAsync(void* target, const void* source, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t) {
  return hipMemcpy(target, source, bytes, kind);
}
hipError_t hipMemset(void* target, int value, std::size_t bytes) {
  if (bytes > 0) std::memset(target, value, bytes);
  return hipSuccess;
}
hipError_t hipMemsetAsync(void* target, int value, std::size_t bytes, hipStream_t) {
  return hipMemset(target, value, bytes);
}
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipDeviceSynchronize() { return hipSuccess; }
