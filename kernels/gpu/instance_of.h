// From a plan's run-time `vectors` to a kernel's compile-time instance.
#pragma once

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/gpu/instances.h"
#include "kernels/gpu/platform.h"

namespace hipnorm::gpu {

// Threads that the instance of `vectors` packets may have in a block, on the GPU compiled for. The
// emulator, which does not count registers, stands for any.
constexpr int launch_bound(std::span<const Instance> instances, int vectors) {
  const Instance& instance = *instance_for(instances, vectors, 1);
#if defined(HIPNORM_EMULATED)
  return std::max(instance.max_threads, instance.max_threads_on_amd);
#elif defined(__CUDACC__)
  return instance.max_threads;
#else
  return instance.max_threads_on_amd;
#endif
}

// run.template operator()<V>() with the V of kInstances that equals `vectors`; of those that are
// built for T (built_for) and the GPU compiled for.
template <class T, const auto& kInstances, class Run>
hipError_t with_vectors(int vectors, const Run& run) {
  constexpr DType kType = std::is_same_v<T, double> ? DType::f64 : DType::f32;
  hipError_t error = hipErrorInvalidConfiguration;
  const auto try_instance = [&]<std::size_t I>() {
    if constexpr (I < built_for(kInstances, kType).size()) {
      constexpr int kVectors = kInstances[I].vectors;
      if constexpr (launch_bound(kInstances, kVectors) > 0) {
        if (kVectors == vectors) error = run.template operator()<kVectors>();
      }
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (try_instance.template operator()<I>(), ...);
  }(std::make_index_sequence<std::size(kInstances)>());
  return error;
}

}  // namespace hipnorm::gpu
