// Packet: the 16 bytes that one lane loads or stores at once, and the element types in it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/platform.h"
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace hipnorm::gpu {

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

template <class T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Elements of T in a packet.
template <class T>
inline constexpr int kElements = 16 / static_cast<int>(sizeof(T));

struct alignas(16) Packet {
  std::uint32_t word[4];
};

template <class To, class From>
__device__ __forceinline__ To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  __builtin_memcpy(&result, &value, sizeof result);  // CUDA's bf16 pairs are not trivially copyable
  return result;
}

// ---- Single elements --------------------------------------------------------------------------
__device__ __forceinline__ float to_accumulate(float x) { return x; }
__device__ __forceinline__ double to_accumulate(double x) { return x; }
__device__ __forceinline__ float to_accumulate(bf16 x) {
  return bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float to_accumulate(f16 x) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(x.bits));
#elif defined(HIPNORM_EMULATED)
  return half_bits_to_float(x.bits);
#else
  return static_cast<float>(bits_as<_Float16>(x.bits));
#endif
}

// Round to nearest even; NaN stays NaN.
__device__ __forceinline__ std::uint32_t bf16_bits(float x) {
#if defined(__CUDACC__)
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
  const std::uint32_t u = bits_as<std::uint32_t>(x);
  return x != x ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
#endif
}
__device__ __forceinline__ std::uint32_t f16_bits(float x) {
#if defined(__CUDACC__)
  return __half_as_ushort(__float2half_rn(x));
#elif defined(HIPNORM_EMULATED)
  return float_to_half_bits(x);
#else
  return bits_as<std::uint16_t>(static_cast<_Float16>(x));
#endif
}
template <class T>
__device__ __forceinline__ T from_accumulate(accumulate_t<T> x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return {static_cast<std::uint16_t>(bf16_bits(x))};
  } else if constexpr (std::is_same_v<T, f16>) {
    return {static_cast<std::uint16_t>(f16_bits(x))};
  } else {
    return x;
  }
}

// ---- Packets ----------------------------------------------------------------------------------
// Element `i` of a packet; i is a constant once the caller's loop is unrolled.
template <class T>
__device__ __forceinline__ accumulate_t<T> element(const Packet& packet, int i) {
  if constexpr (sizeof(T) == 2) {
    const std::uint32_t word = packet.word[i / 2];
    if constexpr (std::is_same_v<T, bf16>) {
      return bits_as<float>(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else {
      return to_accumulate(f16{static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16)});
    }
  } else if constexpr (sizeof(T) == 4) {
    return bits_as<float>(packet.word[i]);
  } else {
    return bits_as<double>(packet.word[2 * i] | static_cast<std::uint64_t>(packet.word[2 * i + 1])
                                                    << 32);
  }
}

template <class T>
__device__ __forceinline__ Packet pack(const accumulate_t<T> (&values)[kElements<T>]) {
  Packet packet;
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = values[2 * i], high = values[2 * i + 1];
#if defined(__CUDACC__)
      if constexpr (std::is_same_v<T, bf16>) {
        packet.word[i] = bits_as<std::uint32_t>(__floats2bfloat162_rn(low, high));
      } else {
        packet.word[i] = bits_as<std::uint32_t>(__floats2half2_rn(low, high));
      }
#else
      if constexpr (std::is_same_v<T, bf16>) {
        packet.word[i] = bf16_bits(low) | bf16_bits(high) << 16;
      } else {
        packet.word[i] = f16_bits(low) | f16_bits(high) << 16;
      }
#endif
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) packet.word[i] = bits_as<std::uint32_t>(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t bits = bits_as<std::uint64_t>(values[i]);
      packet.word[2 * i] = static_cast<std::uint32_t>(bits);
      packet.word[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
    }
  }
  return packet;
}

// Replaces element `i` by raw bits of T.
template <class T>
__device__ __forceinline__ void set_element(Packet& packet, int i, T value) {
  if constexpr (sizeof(T) == 2) {
    const int shift = 16 * (i % 2);
    packet.word[i / 2] = (packet.word[i / 2] & ~(0xffffu << shift)) |
                         static_cast<std::uint32_t>(value.bits) << shift;
  } else if constexpr (sizeof(T) == 4) {
    packet.word[i] = bits_as<std::uint32_t>(value);
  } else {
    const std::uint64_t bits = bits_as<std::uint64_t>(value);
    packet.word[2 * i] = static_cast<std::uint32_t>(bits);
    packet.word[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
}
template <class T>
__device__ __forceinline__ T raw_element(const Packet& packet, int i) {
  if constexpr (sizeof(T) == 2) {
    return {static_cast<std::uint16_t>(packet.word[i / 2] >> (16 * (i % 2)))};
  } else {
    return element<T>(packet, i);
  }
}

__device__ __forceinline__ Packet zero_packet() { return {{0, 0, 0, 0}}; }
template <class T>
__device__ __forceinline__ Packet packet_of(accumulate_t<T> value) {
  accumulate_t<T> values[kElements<T>];
#pragma unroll
  for (int i = 0; i < kElements<T>; ++i) values[i] = value;
  return pack<T>(values);
}

// What is read once: not kept in L1, which is left to weight and bias. Loads keep the order that
// they are written in.
__device__ __forceinline__ Packet load_once(const char* address) {
#if defined(__CUDACC__)
  Packet packet;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.word[0]), "=r"(packet.word[1]), "=r"(packet.word[2]),
                 "=r"(packet.word[3])
               : "l"(address));
  return packet;
#else
  return *reinterpret_cast<const Packet*>(address);
#endif
}

// a·b + c, rounded once.
__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

// The 16 bytes at `address`, in one store. AMD: to the optimiser a struct is four words, of which
// it would take the last together with an element's store at a row's end, and leave 12 + 4 bytes.
__device__ __forceinline__ void store_packet(char* address, const Packet& packet) {
#if defined(__HIP_DEVICE_COMPILE__)
  using Words = std::uint32_t __attribute__((ext_vector_type(4)));
  *reinterpret_cast<Words*>(address) =
      Words{packet.word[0], packet.word[1], packet.word[2], packet.word[3]};
#else
  *reinterpret_cast<Packet*>(address) = packet;
#endif
}

// a·b, rounded: never one half of a fused multiply-add. g = dy·weight has to be the same number in
// the sums and in dx, so that dx of a single column is exactly 0.
__device__ __forceinline__ float product(float a, float b) {
#if defined(__CUDACC__)
  return __fmul_rn(a, b);
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
  return a * b;
#endif
}
__device__ __forceinline__ double product(double a, double b) {
#if defined(__CUDACC__)
  return __dmul_rn(a, b);
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
  return a * b;
#endif
}

// Hides a packet from the optimiser: what was unpacked from it before is unpacked again after,
// instead of being kept in twice the registers across a reduction.
__device__ __forceinline__ void forget_unpacked(Packet& packet) {
#if defined(HIPNORM_EMULATED)
  (void)packet;
#elif defined(__CUDACC__)
  asm volatile(""
               : "+r"(packet.word[0]), "+r"(packet.word[1]), "+r"(packet.word[2]),
                 "+r"(packet.word[3]));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+v"(packet.word[i]));
#endif
}

// Hides where a number came from: what is computed from it after is computed again, not kept.
__device__ __forceinline__ void forget(int& value) {
#if defined(HIPNORM_EMULATED)
  (void)value;
#elif defined(__CUDACC__)
  asm volatile("" : "+r"(value));
#else
  asm volatile("" : "+v"(value));
#endif
}

// AMD: these sums are formed here. Else their updates, whose only other use lies behind the next
// row's loop, sink past a reduction, and with them all that they are formed from.
template <class A, int E>
__device__ __forceinline__ void pin(A (&sums)[E]) {
#if defined(HIPNORM_EMULATED) || defined(__CUDACC__)
  (void)sums;
#else
#pragma unroll
  for (int i = 0; i < E; ++i) asm volatile("" : "+v"(sums[i]));
#endif
}
// AMD: nothing is scheduled across. One a packet makes the waits for a row's loads stepwise.
__device__ __forceinline__ void schedule_here() {
#if !defined(HIPNORM_EMULATED) && !defined(__CUDACC__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

}  // namespace hipnorm::gpu
