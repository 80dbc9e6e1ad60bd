// A stretch of memory with bounds that every access checks: packets beyond it are zero when loaded,
// and dropped when stored. Tails and rows that do not exist need no branch and no mask.
//
// CDNA checks them in the load itself, by a buffer descriptor of four scalar registers; elsewhere a
// comparison does. Where the compiler has not the instructions' builtins (clang before 20), CDNA
// takes the comparison, too.
#pragma once

#include <cstdint>

#include "kernels/gpu/packet.h"

#if !defined(HIPNORM_EMULATED) && !defined(__CUDACC__) && defined(__GFX9__)
#if __has_builtin(__builtin_amdgcn_make_buffer_rsrc) && \
    __has_builtin(__builtin_amdgcn_raw_buffer_load_b128)
#define HIPNORM_BUFFER_DESCRIPTORS 1
#endif
#endif
#if !defined(HIPNORM_BUFFER_DESCRIPTORS)
#define HIPNORM_BUFFER_DESCRIPTORS 0
#endif

namespace hipnorm::gpu {

// Says that a number is the same in all lanes of the wave: on AMD it comes into a scalar register.
__device__ __forceinline__ int uniform(int value) {
#if defined(HIPNORM_EMULATED) || defined(__CUDACC__)
  return value;
#else
  return __builtin_amdgcn_readfirstlane(value);
#endif
}
__device__ __forceinline__ float uniform(float value) {
  return bits_as<float>(uniform(bits_as<int>(value)));
}

// p[i], of which all lanes want the same, and which nobody writes while the kernel runs: on AMD by
// the scalar unit.
__device__ __forceinline__ float load_uniform(const float* p, std::int64_t i) {
#if defined(HIPNORM_EMULATED) || defined(__CUDACC__)
  return p[i];
#else
  using Constant = const float __attribute__((address_space(4)));
  return reinterpret_cast<Constant*>(reinterpret_cast<std::uintptr_t>(p))[i];
#endif
}

// The first element of a row of whole packets, likewise.
template <class T>
__device__ __forceinline__ float load_uniform_first(const char* row) {
  Packet packet = zero_packet();
  packet.word[0] = bits_as<std::uint32_t>(load_uniform(reinterpret_cast<const float*>(row), 0));
  return element<T>(packet, 0);
}

// A copy that is made where it is written. AMD: one of what the last turn of a loop has loaded
// would be made, and waited for, in front of the loop's last barrier.
__device__ __forceinline__ Packet copy_here(const Packet& from) {
#if defined(HIPNORM_EMULATED) || defined(__CUDACC__)
  return from;
#else
  Packet to;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("v_mov_b32 %0, %1" : "=v"(to.word[i]) : "v"(from.word[i]));
  }
  return to;
#endif
}

// `base` and `bytes` are the same in all lanes; both are multiples of 16.
struct Buffer {
#if HIPNORM_BUFFER_DESCRIPTORS
  __amdgpu_buffer_rsrc_t descriptor;
  __device__ __forceinline__ Buffer(const void* base, int bytes)
      : descriptor(__builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, kRaw)) {}
  __device__ __forceinline__ Packet load(int offset) const {
    return bits_as<Packet>(__builtin_amdgcn_raw_buffer_load_b128(descriptor, offset, 0, 0));
  }
  __device__ __forceinline__ void store(int offset, const Packet& packet) const {
    using Words = std::uint32_t __attribute__((ext_vector_type(4)));
    __builtin_amdgcn_raw_buffer_store_b128(bits_as<Words>(packet), descriptor, offset, 0, 0);
  }
  // Word 3: untyped, 32-bit data format, as "CDNA3 Instruction Set Architecture" (buffer resource
  // descriptor) has it.
  static constexpr int kRaw = 0x00027000;
#else
  char* base;
  int bytes;
  __device__ __forceinline__ Buffer(const void* buffer_base, int buffer_bytes)
      : base(static_cast<char*>(const_cast<void*>(buffer_base))), bytes(buffer_bytes) {}
  __device__ __forceinline__ Packet load(int offset) const {
    return offset < bytes ? load_once(base + offset) : zero_packet();
  }
  __device__ __forceinline__ void store(int offset, const Packet& packet) const {
    if (offset < bytes) *reinterpret_cast<Packet*>(base + offset) = packet;
  }
#endif
};

}  // namespace hipnorm::gpu
