// Stands for variants whose file is not written yet (kernels/CMakeLists.txt defines which).
#include "kernels/gpu/launchers.h"

namespace hipnorm::gpu {

#define HIPNORM_ABSENT_FORWARD(name)                                   \
  template <class T>                                                   \
  hipError_t name(const ForwardArgs&, const Launch&) {                 \
    return hipErrorInvalidConfiguration;                               \
  }                                                                    \
  template hipError_t name<float>(const ForwardArgs&, const Launch&);  \
  template hipError_t name<double>(const ForwardArgs&, const Launch&); \
  template hipError_t name<f16>(const ForwardArgs&, const Launch&);    \
  template hipError_t name<bf16>(const ForwardArgs&, const Launch&);
#define HIPNORM_ABSENT_BACKWARD(name)                                   \
  template <class T>                                                    \
  hipError_t name(const BackwardArgs&, const Launch&) {                 \
    return hipErrorInvalidConfiguration;                                \
  }                                                                     \
  template hipError_t name<float>(const BackwardArgs&, const Launch&);  \
  template hipError_t name<double>(const BackwardArgs&, const Launch&); \
  template hipError_t name<f16>(const BackwardArgs&, const Launch&);    \
  template hipError_t name<bf16>(const BackwardArgs&, const Launch&);
#define HIPNORM_ABSENT_RESIDENT(name)                                                   \
  template <class T>                                                                    \
  int name(const Config&, const Plan&, const Problem&, const Device&) {                 \
    return 0;                                                                           \
  }                                                                                     \
  template int name<float>(const Config&, const Plan&, const Problem&, const Device&);  \
  template int name<double>(const Config&, const Plan&, const Problem&, const Device&); \
  template int name<f16>(const Config&, const Plan&, const Problem&, const Device&);    \
  template int name<bf16>(const Config&, const Plan&, const Problem&, const Device&);

#if defined(HIPNORM_ABSENT_forward_row)
HIPNORM_ABSENT_FORWARD(forward_wave)
HIPNORM_ABSENT_FORWARD(forward_row)
HIPNORM_ABSENT_RESIDENT(forward_row_resident)
#endif
#if defined(HIPNORM_ABSENT_forward_stream)
HIPNORM_ABSENT_FORWARD(forward_stream)
#endif
#if defined(HIPNORM_ABSENT_forward_ring)
HIPNORM_ABSENT_FORWARD(forward_ring)
HIPNORM_ABSENT_RESIDENT(forward_ring_resident)
#endif
#if defined(HIPNORM_ABSENT_backward_row)
HIPNORM_ABSENT_BACKWARD(backward_wave)
HIPNORM_ABSENT_BACKWARD(backward_row)
HIPNORM_ABSENT_RESIDENT(backward_wave_resident)
HIPNORM_ABSENT_RESIDENT(backward_row_resident)
#endif
#if defined(HIPNORM_ABSENT_backward_row_dx)
HIPNORM_ABSENT_BACKWARD(backward_row_dx)
#endif
#if defined(HIPNORM_ABSENT_backward_ring)
HIPNORM_ABSENT_BACKWARD(backward_ring)
HIPNORM_ABSENT_RESIDENT(backward_ring_resident)
#endif
#if defined(HIPNORM_ABSENT_backward_two_kernel)
HIPNORM_ABSENT_BACKWARD(backward_two_kernel)
#endif
#if defined(HIPNORM_ABSENT_backward_sums_first)
HIPNORM_ABSENT_BACKWARD(backward_sums_first)
#endif
#if defined(HIPNORM_ABSENT_backward_roles)
HIPNORM_ABSENT_BACKWARD(backward_roles)
#endif
#if defined(HIPNORM_ABSENT_reduce_parts)
HIPNORM_ABSENT_BACKWARD(reduce_parts)
#endif

}  // namespace hipnorm::gpu
