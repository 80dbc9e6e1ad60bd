// torch::autograd::Node is held by std::shared_ptr up to torch 2.11 and counts its own references
// (c10::intrusive_ptr) in 2.13. This header is the only place that knows.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace hipnorm {

// Creates a Node as torch's own code does, deleter included.
template <class T, class... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>) {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  } else {
    // deleteNode (found by argument-dependent lookup) walks long graphs without recursion.
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...),
                              [](T* node) { deleteNode(node); });
  }
}

}  // namespace hipnorm
