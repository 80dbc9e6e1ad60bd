// In the place of forward_ring.hip and backward_ring.hip where the platform has no copy engine
// (AMD): validate refuses their variants there before anything is launched (Device::bulk_copies).
#include "kernels/gpu/launchers.h"

namespace hipnorm::gpu {

template <class T>
hipError_t forward_ring(const ForwardArgs&, const Launch&) {
  return hipErrorInvalidConfiguration;
}
template <class T>
hipError_t backward_ring(const BackwardArgs&, const Launch&) {
  return hipErrorInvalidConfiguration;
}
template <class T>
int forward_ring_resident(const Config&, const Plan&, const Problem&, const Device&) {
  return 0;
}
template <class T>
int backward_ring_resident(const Config&, const Plan&, const Problem&, const Device&) {
  return 0;
}

template hipError_t forward_ring<HIPNORM_ELEMENT>(const ForwardArgs&, const Launch&);
template hipError_t backward_ring<HIPNORM_ELEMENT>(const BackwardArgs&, const Launch&);
template int forward_ring_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                    const Device&);
template int backward_ring_resident<HIPNORM_ELEMENT>(const Config&, const Plan&, const Problem&,
                                                     const Device&);

}  // namespace hipnorm::gpu
