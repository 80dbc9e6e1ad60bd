// Flags in memory between blocks that run at the same time: single 8-byte accesses, atomic and
// relaxed, that every compute unit of the device sees. They order nothing but themselves, so what a
// block has to tell another goes into the 8 bytes. The emulator has its own functions of these
// names.
#pragma once

#include <cstdint>

#include "kernels/gpu/platform.h"

#if !defined(HIPNORM_EMULATED)

namespace hipnorm::gpu {

__device__ __forceinline__ std::uint64_t agent_load(const std::uint64_t* flag) {
#if defined(__CUDACC__)
  std::uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
#else
  return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}
__device__ __forceinline__ void agent_store(std::uint64_t* flag, std::uint64_t value) {
#if defined(__CUDACC__)
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
#else
  __hip_atomic_store(flag, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

}  // namespace hipnorm::gpu

#endif
