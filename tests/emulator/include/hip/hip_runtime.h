// Stands in for HIP's header where the GPU kernels are compiled for the emulator: as plain C++20,
// every GPU thread a fiber of one processor thread. Only the names that hipnorm's kernels and
// launches use.
//
// What the emulator finds: tests/emulator/*_faults_test.cpp and races_test.cpp, each with the bug
// that shows it. What it does not find:
//  - races in global memory, and in LDS of a post to another block with that block's reads, except
//    where a schedule makes them show;
//  - a race of a write that leaves the bytes as they were: it counts as a read;
//  - what a reference into LDS (auto& r = p[i]) does after the next barrier or shuffle;
//  - a shuffle taken for a memory barrier, which it is here and on AMD, not on NVIDIA;
//  - an endless loop without any of these operations; more registers, or a block of more threads,
//    than __launch_bounds__ allows; the stack of a thread beyond 128 KB (a crash).
#pragma once

#if !defined(HIPNORM_EMULATED_WAVE) || (HIPNORM_EMULATED_WAVE != 32 && HIPNORM_EMULATED_WAVE != 64)
#error "HIPNORM_EMULATED_WAVE must be 32 or 64: compile with hipnorm_emulate() of tests/emulator"
#endif

#include <cmath>
#include <type_traits>

#include "tests/emulator/async.h"
#include "tests/emulator/device.h"
#include "tests/emulator/half.h"
#include "tests/emulator/host.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/lds.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

#define threadIdx (::hipnorm::emulator::current->thread_idx)
#define blockIdx (::hipnorm::emulator::current->block->block_idx)
#define blockDim (::hipnorm::emulator::current->block->block_dim)
#define gridDim (::hipnorm::emulator::current->block->grid_dim)

inline int __any(int predicate, std::source_location site = std::source_location::current()) {
  int any = predicate != 0;
  for (int mask = HIPNORM_EMULATED_WAVE / 2; mask > 0; mask /= 2) {
    any |= hipnorm::emulator::shuffle_value(hipnorm::emulator::Shuffle::exclusive_or, any, mask,
                                            HIPNORM_EMULATED_WAVE, site);
  }
  return any;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline void __syncthreads(std::source_location site = std::source_location::current()) {
  hipnorm::emulator::sync_threads(site);
}
template <class T>
T __shfl(T value, int lane, int width = HIPNORM_EMULATED_WAVE,
         std::source_location site = std::source_location::current()) {
  using hipnorm::emulator::Shuffle;
  return hipnorm::emulator::shuffle_value(Shuffle::lane, value, lane, width, site);
}
template <class T>
T __shfl_xor(T value, int mask, int width = HIPNORM_EMULATED_WAVE,
             std::source_location site = std::source_location::current()) {
  using hipnorm::emulator::Shuffle;
  return hipnorm::emulator::shuffle_value(Shuffle::exclusive_or, value, mask, width, site);
}

namespace hipnorm::gpu {

template <class Args>
hipError_t launch_kernel(void (*kernel)(Args), const Grid& grid, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096,
                "a kernel's argument is copied bit by bit, at most 4096 bytes of it");
  const auto run = [](const emulator::Call& call) {
    reinterpret_cast<void (*)(Args)>(call.kernel)(*static_cast<const Args*>(call.args));
  };
  return emulator::launch({run, reinterpret_cast<void (*)()>(kernel), &args, __PRETTY_FUNCTION__},
                          grid, HIPNORM_EMULATED_WAVE);
}

}  // namespace hipnorm::gpu
