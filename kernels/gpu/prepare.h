// What the runtime has to be told and asked about a kernel before it is launched: more LDS than a
// block has by default, and how many blocks the device holds at once.
//
// Both speak to the current device, which must be the one that `device` describes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/dispatch/device.h"
#include "kernels/gpu/platform.h"

namespace hipnorm::gpu {

// A block may have this much dynamic LDS without asking.
inline constexpr std::size_t kPlainLdsBytes = 48 * 1024;
// Clusters of more blocks than this are not portable and have to be asked for.
inline constexpr int kPlainCluster = 8;

#if !defined(HIPNORM_EMULATED)

// Asks for the most that the device can give, not for `lds_bytes`: the attribute belongs to the
// kernel, and another thread may be about to launch it with more. It only lifts a limit; what a
// block takes is what its launch says. Costs the runtime call (0.3 µs) once per thread, kernel and
// device, and a comparison afterwards.
inline hipError_t lift_limits(const void* kernel, const Device& device, int cluster) {
  struct Entry {
    const void* kernel = nullptr;
    const Device* device = nullptr;
    int cluster = 0;
  };
  constexpr std::size_t kEntries = 64;  // a process uses some ten kernels
  thread_local Entry entries[kEntries];
  Entry& entry = entries[(reinterpret_cast<std::uintptr_t>(kernel) >> 4) % kEntries];
  const int asked = std::max(cluster, kPlainCluster);
  if (entry.kernel == kernel && entry.device == &device && entry.cluster >= asked) {
    return hipSuccess;
  }
  hipError_t error = hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(device.lds_bytes));
#if defined(__CUDACC__)
  if (error == hipSuccess && asked > kPlainCluster) {
    error = hipFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
#endif
  if (error == hipSuccess) entry = {kernel, &device, asked};
  return error;
}

#endif

// Before every launch of `kernel` with this much dynamic LDS and this many blocks a cluster.
template <class Args>
hipError_t prepare_kernel(void (*kernel)(Args), const Device& device, std::size_t lds_bytes,
                          int cluster = 1) {
  if (lds_bytes > static_cast<std::size_t>(device.lds_bytes) || cluster > device.max_cluster) {
    return hipErrorInvalidConfiguration;
  }
#if defined(HIPNORM_EMULATED)
  static_cast<void>(kernel);
  return hipSuccess;
#else
  if (lds_bytes <= kPlainLdsBytes && cluster <= kPlainCluster) return hipSuccess;
  return lift_limits(reinterpret_cast<const void*>(kernel), device, cluster);
#endif
}

// Clusters of `cluster` blocks (1: blocks) of `kernel` that the whole device holds at once; 0 where
// it cannot run.
template <class Args>
int resident_clusters(void (*kernel)(Args), const Device& device, int threads,
                      std::size_t lds_bytes, int cluster = 1) {
  if (prepare_kernel(kernel, device, lds_bytes, cluster) != hipSuccess) return 0;
#if defined(HIPNORM_EMULATED)
  const std::int64_t by_lds =
      lds_bytes == 0 ? 2 : device.unit_lds_bytes / static_cast<std::int64_t>(lds_bytes);
  const int blocks = static_cast<int>(std::min<std::int64_t>({2, by_lds, 2048 / threads}));
  return std::max(1, device.compute_units * blocks / cluster);
#else
  const auto function = reinterpret_cast<const void*>(kernel);
  int count = 0;
  hipError_t error = hipSuccess;
#if defined(__CUDACC__)
  if (cluster > 1) {
    error = cuda_resident_clusters(&count, function, threads, lds_bytes, cluster);
    if (error != hipSuccess) static_cast<void>(hipGetLastError());
    return error == hipSuccess ? count : 0;
  }
#endif
  error = hipOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, threads, lds_bytes);
  if (error != hipSuccess) static_cast<void>(hipGetLastError());
  return error == hipSuccess ? count * device.compute_units / cluster : 0;
#endif
}

}  // namespace hipnorm::gpu
