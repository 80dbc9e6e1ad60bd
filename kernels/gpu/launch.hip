// From config and dtype to the launch function of one variant, and from the runtime's error code to
// words.
#include <string>

#include "kernels/backends.h"
#include "kernels/gpu/instances.h"
#include "kernels/gpu/launchers.h"

namespace hipnorm::gpu {
namespace {

template <class Args>
using Launcher = hipError_t (*)(const Args&, const Launch&);

// Of the row variants: whether the kernels for whole packets run.
bool packets(const Launch& launch) {
  return takes_packets(launch.problem, launch.config.stages, is_amd(launch.device));
}

template <class T>
Launcher<ForwardArgs> forward_launcher(const Launch& launch) {
  switch (launch.config.variant) {
    case Variant::gpu_forward_wave: return forward_wave<T>;
    case Variant::gpu_forward_row: return packets(launch) ? forward_packets<T> : forward_row<T>;
    case Variant::gpu_forward_ring: return forward_ring<T>;
    case Variant::gpu_forward_stream: return forward_stream<T>;
    default: return nullptr;
  }
}

template <class T>
Launcher<BackwardArgs> backward_launcher(const Launch& launch) {
  switch (launch.config.variant) {
    case Variant::gpu_backward_wave: return backward_wave<T>;
    case Variant::gpu_backward_row: return packets(launch) ? backward_packets<T> : backward_row<T>;
    case Variant::gpu_backward_ring: return backward_ring<T>;
    case Variant::gpu_backward_group: return backward_group<T>;
    case Variant::gpu_backward_two_kernel: return backward_two_kernel<T>;
    case Variant::gpu_backward_roles: return backward_roles<T>;
    case Variant::gpu_backward_sums_first: return backward_sums_first<T>;
    default: return nullptr;
  }
}

Launcher<ForwardArgs> forward_launcher(const Launch& launch) {
  switch (launch.problem.x) {
    case DType::f32: return forward_launcher<float>(launch);
    case DType::f64: return forward_launcher<double>(launch);
    case DType::f16: return forward_launcher<f16>(launch);
    case DType::bf16: return forward_launcher<bf16>(launch);
    case DType::none: break;
  }
  return nullptr;
}
Launcher<BackwardArgs> backward_launcher(const Launch& launch) {
  switch (launch.problem.x) {
    case DType::f32: return backward_launcher<float>(launch);
    case DType::f64: return backward_launcher<double>(launch);
    case DType::f16: return backward_launcher<f16>(launch);
    case DType::bf16: return backward_launcher<bf16>(launch);
    case DType::none: break;
  }
  return nullptr;
}

template <class Args>
Error run(Launcher<Args> launcher, const Args& args, const Launch& launch, const char* direction) {
  if (launcher == nullptr) {
    return failure(launch, std::string("not a ") + direction + " variant of the GPU");
  }
  const hipError_t error = launcher(args, launch);
  if (error == hipSuccess) return {};
#if !defined(HIPNORM_EMULATED)
  static_cast<void>(hipGetLastError());  // reported here, not by whoever asks next
#endif
  return failure(launch, hipGetErrorString(error));
}

}  // namespace

Error launch_forward(const ForwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  if (p.rows == 0 || p.cols == 0) return {};
  return run(forward_launcher(launch), args, launch, "forward");
}

Error launch_backward(const BackwardArgs& args, const Launch& launch) {
  const Problem& p = launch.problem;
  if (p.rows == 0 || p.cols == 0 || !(p.grads.dx || p.grads.columns())) return {};
  return run(backward_launcher(launch), args, launch, "backward");
}

}  // namespace hipnorm::gpu
