// HIP's host interface on plain memory: a stream runs at once, an allocation is the processor's.
#pragma once

#include <cstddef>

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInvalidConfiguration = 9,
  hipErrorLaunchFailure = 719,
  hipErrorCooperativeLaunchTooLarge = 720,
  hipErrorNotSupported = 801,
};
enum hipMemcpyKind {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
};
struct ihipStream_t;
using hipStream_t = ihipStream_t*;

// Of the error of the last launch_kernel: emulator::last_fault(), the sentence that says what
// happened.
const char* hipGetErrorString(hipError_t error);

hipError_t hipGetDevice(int* device);
// Memory is filled with 0xff, NaN in every format.
hipError_t hipMalloc(void** pointer, std::size_t bytes);
template <class T>
hipError_t hipMalloc(T** pointer, std::size_t bytes) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
hipError_t hipFree(void* pointer);
hipError_t hipMemcpy(void* target, const void* source, std::size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* target, const void* source, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream = nullptr);
hipError_t hipMemset(void* target, int value, std::size_t bytes);
hipError_t hipMemsetAsync(void* target, int value, std::size_t bytes, hipStream_t stream = nullptr);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipDeviceSynchronize();
