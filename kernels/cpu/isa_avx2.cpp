// AVX2, FMA and F16C (compiled with -mavx2 -mfma -mf16c).
#if defined(__x86_64__)
#define HIPNORM_ISA avx2
#define HIPNORM_VEC_BYTES 32
#include "kernels/cpu/kernels_of_isa.h"

namespace hipnorm::cpu {
const Kernels* avx2_kernels(DType x, DType weight) { return avx2::kernels_for(x, weight); }
}  // namespace hipnorm::cpu
#else
#include "kernels/cpu/work.h"
namespace hipnorm::cpu {
const Kernels* avx2_kernels(DType, DType) { return nullptr; }
}  // namespace hipnorm::cpu
#endif
