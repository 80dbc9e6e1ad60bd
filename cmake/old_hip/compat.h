// Before every unit where HIP 5.2 meets clang ≥ 20 (HipnormOldHip.cmake): names that those headers
// take from the compiler, and that it has dropped since.
#pragma once

#if defined(__HIP__)

#if !defined(__AMDGCN_WAVEFRONT_SIZE)
#if defined(__GFX9__)
#define __AMDGCN_WAVEFRONT_SIZE 64
#else
#define __AMDGCN_WAVEFRONT_SIZE 32
#endif
#endif

// rocPRIM 5.3 knows RDNA by this name alone, and takes others for GCN, whose cross-row DPP
// instructions RDNA does not have. gfx1100 has what gfx1030 has here.
#if defined(__gfx1100__) && !defined(__gfx1030__)
#define __gfx1030__ 1
#endif

// hip_fp16.h: 1/x in half precision, which nothing here uses.
using half2_t = _Float16 __attribute__((ext_vector_type(2)));
__attribute__((device)) inline _Float16 __llvm_amdgcn_rcp_f16(_Float16 x) {
  return static_cast<_Float16>(__builtin_amdgcn_rcph(x));
}
__attribute__((device)) inline half2_t __llvm_amdgcn_rcp_2f16(half2_t x) {
  const _Float16 low = x.x, high = x.y;
  return half2_t{__llvm_amdgcn_rcp_f16(low), __llvm_amdgcn_rcp_f16(high)};
}

#endif
