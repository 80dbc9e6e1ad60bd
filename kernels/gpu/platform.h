// What the kernels in this folder need of their platform, under HIP's names: CUDA through one small
// header, HIP itself, or the emulator of tests/emulator (plain C++, every thread a fiber).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(HIPNORM_EMULATED)
#include <hip/hip_runtime.h>  // tests/emulator/include
#elif defined(__CUDACC__)
#include "kernels/gpu/cuda_as_hip.h"
#else
#include <hip/hip_runtime.h>
#endif

namespace hipnorm::gpu {

// Lanes of a wave, in device code. The host asks Device::wave_size.
#if defined(HIPNORM_EMULATED)
inline constexpr int kWave = HIPNORM_EMULATED_WAVE;
#elif defined(__GFX9__)
inline constexpr int kWave = 64;
#else
inline constexpr int kWave = 32;
#endif

#if !defined(HIPNORM_EMULATED)

// LDS (CUDA: shared memory). Every kernel here lays out its dynamic LDS itself; the emulator's Lds
// is a class that checks bounds and alignment.
template <class T>
using Lds = T*;

template <class T>
__device__ __forceinline__ Lds<T> lds_at(std::size_t byte_offset) {
  extern __shared__ __align__(128) unsigned char hipnorm_lds[];
  return reinterpret_cast<T*>(hipnorm_lds + byte_offset);
}
template <class U, class T>
__device__ __forceinline__ Lds<U> lds_cast(T* p) {
  return reinterpret_cast<U*>(p);
}

// Orders the LDS accesses of a wave's lanes. On AMD a wave runs in lock step and LDS keeps order:
// only the compiler has to be told.
__device__ __forceinline__ void wave_sync() {
#if defined(__CUDACC__)
  __syncwarp();
#else
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#endif
}

#endif  // !HIPNORM_EMULATED

// Grid::early. What a kernel that never waits, or is waited for, need not call.
__device__ __forceinline__ void previous_done() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void next_may_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether it holds in any lane of the wave.
__device__ __forceinline__ bool wave_any(bool here) {
#if defined(__CUDACC__)
  return __any_sync(0xffffffffu, here) != 0;
#else
  return __any(here) != 0;
#endif
}

// AMD: a wave has 102 scalar registers, in which the compiler keeps what does not change in a loop:
// arguments, and two registers for every comparison of them. In a long loop over rows they spill.
//
// Hides where a number, the same in all lanes, came from: comparisons of it are made again.
__device__ __forceinline__ void forget_uniform(int& value) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+s"(value));
#else
  static_cast<void>(value);
#endif
}
// The arguments of the running kernel, its only parameter, to be read again: by scalar loads, which
// hit their cache.
template <class Args>
__device__ __forceinline__ const Args& reread(const Args& args) {
#if defined(__HIP_DEVICE_COMPILE__)
  static_cast<void>(args);
  auto* kernel_arguments = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(kernel_arguments));
  return *(const Args*)kernel_arguments;  // no named cast leaves an address space
#else
  return args;
#endif
}

#if !defined(HIPNORM_EMULATED)

struct Grid {
  std::int64_t blocks = 0;  // of the whole grid, a multiple of `cluster`
  int threads = 0;          // of a block
  std::size_t lds_bytes = 0;
  int cluster = 0;  // blocks of a cluster (sm_90), 1 for a kernel that uses its instructions alone
  bool cooperative = false;
  // sm_90: may start before the kernel before it in the stream has ended, once all blocks of that
  // have called next_may_start() or ended. Touches no memory before previous_done().
  bool early = false;
  hipStream_t stream = nullptr;
};

// Queues one kernel. The kernel must have been prepared (prepare_kernel) for its LDS.
template <class Args>
hipError_t launch_kernel(void (*kernel)(Args), const Grid& grid, const Args& args) {
  Args copy = args;
  void* pointers[] = {&copy};
#if defined(__CUDACC__)
  return cuda_launch(reinterpret_cast<const void*>(kernel), grid.blocks, grid.threads,
                     grid.lds_bytes, grid.cluster, grid.cooperative, grid.early, grid.stream,
                     pointers);
#else
  const dim3 blocks(static_cast<unsigned>(grid.blocks)),
      threads(static_cast<unsigned>(grid.threads));
  if (grid.cooperative) {
    return hipLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), blocks, threads,
                                      pointers, static_cast<unsigned>(grid.lds_bytes), grid.stream);
  }
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, threads, pointers,
                         grid.lds_bytes, grid.stream);
#endif
}

#endif  // !HIPNORM_EMULATED

}  // namespace hipnorm::gpu
