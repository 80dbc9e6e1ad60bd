// Arithmetic that the dispatch's files share.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace hipnorm {

// a ÷ b, rounded up; a ≥ 0, b > 0. Exact for integers; a double if one of them is.
template <class A, class B>
auto ceil_div(A a, B b) {
  if constexpr (std::integral<A> && std::integral<B>) {
    return std::int64_t{a} / b + (std::int64_t{a} % b != 0);
  } else {
    return std::ceil(static_cast<double>(a) / static_cast<double>(b));
  }
}

}  // namespace hipnorm
