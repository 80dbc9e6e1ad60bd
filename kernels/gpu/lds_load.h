// Loads from memory into LDS. gfx950 has them in the copying of 16 bytes a lane that passes no
// register, so that a block may have more under way than its registers hold; elsewhere the packet
// takes the way through registers.
//
// Each lane may read only what it loaded itself. Waits are the compiler's: it takes every LDS
// access for one that may touch what is under way, so kernels read all that they need first, then
// load.
#pragma once

#include "kernels/gpu/buffer.h"

namespace hipnorm::gpu {

// Whether the target being compiled has 160 KB of LDS to load into: what kernels that keep part of
// a row there are built by. (The emulator stands for any.)
#if defined(HIPNORM_EMULATED) || defined(__gfx950__)
inline constexpr bool kLargeLds = true;
#else
inline constexpr bool kLargeLds = false;
#endif

#if defined(__gfx950__) && HIPNORM_BUFFER_DESCRIPTORS
#if __has_builtin(__builtin_amdgcn_raw_ptr_buffer_load_lds)
#define HIPNORM_LOADS_TO_LDS 1
#endif
#endif

// The packet at byte `offset` of `buffer` to slots[thread]; thread is the lane's index in the
// block.
__device__ __forceinline__ void load_to_lds(const Buffer& buffer, int offset, Lds<Packet> slots,
                                            int thread) {
#if defined(HIPNORM_LOADS_TO_LDS)
  // Lane l of the wave writes at the wave's place + 16·l.
  Packet* of_wave = slots + uniform(thread / kWave) * kWave;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(
      buffer.descriptor, (__attribute__((address_space(3))) void*)of_wave, 16, offset, 0, 0, 0);
#else
  slots[thread] = buffer.load(offset);
#endif
}

}  // namespace hipnorm::gpu
