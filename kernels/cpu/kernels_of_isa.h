// The table of one instruction set's kernels. Included last by each isa_*.cpp.
#pragma once

#include "kernels/cpu/backward.h"
#include "kernels/cpu/forward.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// T: type of the tensors; W: of weight and bias, T or T's arithmetic type.
template <class T, class W>
const Kernels* kernels_of() {
  static constexpr Kernels kernels = {
      forward_rows<T, W>,        forward_strip_moments<T>,   forward_strip_apply<T, W>,
      backward_rows<T, W>,       backward_columns<T, W>,     backward_rows_dx<T, W>,
      backward_strip_sums<T, W>, backward_strip_apply<T, W>, reduce_parts<T>,
      pack_parameter<T>,
  };
  return &kernels;
}

inline const Kernels* kernels_for(DType x, DType weight) {
  const bool same = weight == x;
  switch (x) {
    case DType::f32: return kernels_of<float, float>();
    case DType::f64: return kernels_of<double, double>();
    case DType::bf16: return same ? kernels_of<bf16, bf16>() : kernels_of<bf16, float>();
    case DType::f16: return same ? kernels_of<f16, f16>() : kernels_of<f16, float>();
    case DType::none: return nullptr;
  }
  return nullptr;
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
