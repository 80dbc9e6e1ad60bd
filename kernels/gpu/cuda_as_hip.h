// The HIP names that this library uses, in terms of CUDA. HIP's own headers for NVIDIA do not build
// with CUDA 13.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipDeviceProp_t = cudaDeviceProp;
using hipFuncAttributes = cudaFuncAttributes;
using hipGraph_t = cudaGraph_t;
using hipGraphExec_t = cudaGraphExec_t;

inline constexpr hipError_t hipSuccess = cudaSuccess;
inline constexpr hipError_t hipErrorInvalidConfiguration = cudaErrorInvalidConfiguration;
inline constexpr hipError_t hipErrorInvalidDeviceFunction = cudaErrorInvalidDeviceFunction;
inline constexpr hipError_t hipErrorNoBinaryForGpu = cudaErrorNoKernelImageForDevice;
inline constexpr hipError_t hipErrorLaunchFailure = cudaErrorLaunchFailure;
inline constexpr hipError_t hipErrorCooperativeLaunchTooLarge = cudaErrorCooperativeLaunchTooLarge;
inline constexpr hipError_t hipErrorNotSupported = cudaErrorNotSupported;
inline constexpr auto hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr auto hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr auto hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr auto hipStreamCaptureModeRelaxed = cudaStreamCaptureModeRelaxed;
inline constexpr auto hipFuncAttributeMaxDynamicSharedMemorySize =
    cudaFuncAttributeMaxDynamicSharedMemorySize;

inline const char* hipGetErrorString(hipError_t error) { return cudaGetErrorString(error); }
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipGetDevice(int* device) { return cudaGetDevice(device); }
inline hipError_t hipSetDevice(int device) { return cudaSetDevice(device); }
inline hipError_t hipGetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}
inline hipError_t hipDriverGetVersion(int* version) { return cudaDriverGetVersion(version); }
inline hipError_t hipRuntimeGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
inline hipError_t hipStreamSynchronize(hipStream_t stream) { return cudaStreamSynchronize(stream); }
inline hipError_t hipStreamCreate(hipStream_t* stream) { return cudaStreamCreate(stream); }
inline hipError_t hipStreamDestroy(hipStream_t stream) { return cudaStreamDestroy(stream); }
inline hipError_t hipMalloc(void** p, std::size_t bytes) { return cudaMalloc(p, bytes); }
inline hipError_t hipFree(void* p) { return cudaFree(p); }
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline hipError_t hipMemset(void* p, int value, std::size_t bytes) {
  return cudaMemset(p, value, bytes);
}
inline hipError_t hipMemsetAsync(void* p, int value, std::size_t bytes, hipStream_t stream) {
  return cudaMemsetAsync(p, value, bytes, stream);
}
inline hipError_t hipEventCreate(hipEvent_t* event) { return cudaEventCreate(event); }
inline hipError_t hipEventDestroy(hipEvent_t event) { return cudaEventDestroy(event); }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return cudaEventRecord(event, stream);
}
inline hipError_t hipEventSynchronize(hipEvent_t event) { return cudaEventSynchronize(event); }
inline hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}
inline hipError_t hipStreamBeginCapture(hipStream_t stream, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(stream, mode);
}
inline hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return cudaStreamEndCapture(stream, graph);
}
inline hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, void*, char*,
                                      std::size_t) {
  return cudaGraphInstantiate(executable, graph, 0);
}
inline hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  return cudaGraphLaunch(executable, stream);
}
inline hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return cudaGraphExecDestroy(executable);
}
inline hipError_t hipGraphDestroy(hipGraph_t graph) { return cudaGraphDestroy(graph); }
inline hipError_t hipFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return cudaFuncGetAttributes(attributes, kernel);
}
inline hipError_t hipFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
inline hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                               int threads, std::size_t lds_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, lds_bytes);
}

// Shuffles of the whole wave; lanes that do not take part are a programming error (the emulator
// says so), hence the full mask.
template <class T>
__device__ __forceinline__ T __shfl(T value, int lane, int width = 32) {
  return __shfl_sync(0xffffffffu, value, lane, width);
}
template <class T>
__device__ __forceinline__ T __shfl_xor(T value, int mask, int width = 32) {
  return __shfl_xor_sync(0xffffffffu, value, mask, width);
}

namespace hipnorm::gpu {

inline cudaLaunchConfig_t cuda_config(std::int64_t blocks, int threads, std::size_t lds_bytes,
                                      int cluster, bool cooperative, bool early,
                                      cudaStream_t stream, cudaLaunchAttribute (&attributes)[3]) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = lds_bytes;
  config.stream = stream;
  config.attrs = attributes;
  // Also for one block: the instructions of clusters are illegal in a launch without it.
  if (cluster > 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  if (cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (early) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  return config;
}

inline hipError_t cuda_launch(const void* kernel, std::int64_t blocks, int threads,
                              std::size_t lds_bytes, int cluster, bool cooperative, bool early,
                              cudaStream_t stream, void** arguments) {
  cudaLaunchAttribute attributes[3];
  const cudaLaunchConfig_t config =
      cuda_config(blocks, threads, lds_bytes, cluster, cooperative, early, stream, attributes);
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

// Clusters that the current device holds at once.
inline hipError_t cuda_resident_clusters(int* count, const void* kernel, int threads,
                                         std::size_t lds_bytes, int cluster) {
  cudaLaunchAttribute attributes[3];
  const cudaLaunchConfig_t config =
      cuda_config(cluster, threads, lds_bytes, cluster, false, false, nullptr, attributes);
  return cudaOccupancyMaxActiveClusters(count, kernel, &config);
}

}  // namespace hipnorm::gpu
