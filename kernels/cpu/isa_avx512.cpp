// AVX-512 (compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq and those of AVX2).
#if defined(__x86_64__)
#define HIPNORM_ISA avx512
#define HIPNORM_VEC_BYTES 64
#include "kernels/cpu/kernels_of_isa.h"

namespace hipnorm::cpu {
const Kernels* avx512_kernels(DType x, DType weight) { return avx512::kernels_for(x, weight); }
}  // namespace hipnorm::cpu
#else
#include "kernels/cpu/work.h"
namespace hipnorm::cpu {
const Kernels* avx512_kernels(DType, DType) { return nullptr; }
}  // namespace hipnorm::cpu
#endif
