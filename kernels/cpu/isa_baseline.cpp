// 16-byte vectors: what every processor has.
#define HIPNORM_ISA baseline
#define HIPNORM_VEC_BYTES 16
#include "kernels/cpu/kernels_of_isa.h"

namespace hipnorm::cpu {
const Kernels* baseline_kernels(DType x, DType weight) { return baseline::kernels_for(x, weight); }
}  // namespace hipnorm::cpu
