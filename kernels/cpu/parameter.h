// Parameters and accumulators in packet order.
#pragma once

#include "kernels/cpu/packet.h"
#include "kernels/cpu/work.h"

namespace hipnorm::cpu::HIPNORM_ISA {

// A weight or bias of type W, read as packets of T, or the constant that stands for one that was
// not given, read without a branch: the constant is one packet that every index maps to. The row's
// last, partial packet is kept apart, because the caller's tensor ends at N.
//
// W is T, converted at every use (half the bytes from L2 that an f32 copy would take), or A in
// packet order.
template <class T, class W>
class Parameter {
  using A = accumulate_t<T>;
  using P = Packet<T>;

 public:
  // Whether a packet may start at any column: those of the packet order are fixed.
  static constexpr bool kAnyColumn = sizeof(W) == sizeof(T);

  // `given` is null or has `readable` elements, N of them meant.
  Parameter(const void* given, std::int64_t readable, std::int64_t cols, A absent)
      : data_(static_cast<const W*>(given)), mask_(~std::int64_t{0}) {
    if (data_ == nullptr) {
      for (int j = 0; j < P::kElements; ++j) absent_[j] = tail_[j] = from_arithmetic<W>(absent);
      data_ = absent_;
      mask_ = 0;
    } else {
      tail_at_ = cols - cols % P::kElements;
      for (std::int64_t j = tail_at_; j < readable && j < tail_at_ + P::kElements; ++j) {
        tail_[j - tail_at_] = data_[j];
      }
    }
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // For use in a loop: held in registers, since no store can change it.
  struct View {
    const W* data;
    std::int64_t mask;
    const W* tail;
    std::int64_t tail_at;

    // The packet at element i; kTail: only its elements before `end` are wanted. Where not
    // kAnyColumn, i is a multiple of a packet's size.
    template <bool kTail>
    HIPNORM_INLINE P get(std::int64_t i, std::int64_t end) const {
      const W* p = kTail && i == tail_at ? tail : data + (i & mask);
      if constexpr (kTail && kAnyColumn) {
        if (i != tail_at) return load_head(p, end - i, W{});
      }
      if constexpr (sizeof(W) == sizeof(T)) {
        return P::load(p);
      } else {
        P packet;
        for (int k = 0; k < P::kVectors; ++k) packet.v[k] = load<A>(p + k * kLanes<A>);
        return packet;
      }
    }
  };
  View view() const { return {data_, mask_, tail_, tail_at_}; }

 private:
  const W* data_;
  std::int64_t mask_;
  std::int64_t tail_at_ = 0;
  W absent_[P::kElements];
  W tail_[P::kElements] = {};
};

// Puts a parameter of type A ([cols]) into packet order, zero up to `pitch`.
template <class T>
void pack_parameter(const void* parameter, void* packed, std::int64_t cols, std::int64_t pitch) {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  const auto* from = static_cast<const A*>(parameter);
  auto* to = static_cast<A*>(packed);
  for (std::int64_t i = 0; i < pitch; i += P::kElements) {
    for (int slot = 0; slot < P::kElements; ++slot) {
      const std::int64_t element = i + P::element_of_slot(slot);
      const A a = element < cols ? from[element] : A(0);
      // Packet<bf16>::round wants clean NaNs.
      to[i + slot] = a != a ? static_cast<A>(__builtin_nan("")) : a;
    }
  }
}

// Out is T or A.
template <class T, class Out>
void reduce(const accumulate_t<T>* partial, std::int64_t parts, std::int64_t pitch, Out* out,
            Range columns) {
  using A = accumulate_t<T>;
  using P = Packet<T>;
  for (std::int64_t i = columns.begin; i < columns.end; i += P::kElements) {
    P total;
    for (int k = 0; k < P::kVectors; ++k) {
      total.v[k] = load<A>(partial + i + k * kLanes<A>);
      for (std::int64_t part = 1; part < parts; ++part) {
        total.v[k] += load<A>(partial + part * pitch + i + k * kLanes<A>);
      }
    }
    const std::int64_t left = columns.end - i;
    if constexpr (sizeof(Out) == sizeof(T)) {
      if (left >= P::kElements) {
        store(out + i, total);
      } else {
        store_head(out + i, total, left);
      }
    } else {
      A slots[P::kElements];
      for (int k = 0; k < P::kVectors; ++k) store<A>(slots + k * kLanes<A>, total.v[k]);
      for (int slot = 0; slot < P::kElements; ++slot) {
        const int element = P::element_of_slot(slot);
        if (element < left) out[i + element] = slots[slot];
      }
    }
  }
}

template <class T>
void reduce_parts(const void* partial, std::int64_t parts, std::int64_t pitch, void* out,
                  DType type, Range columns) {
  using A = accumulate_t<T>;
  const auto* from = static_cast<const A*>(partial);
  if (size_of(type) == sizeof(A)) {
    reduce<T>(from, parts, pitch, static_cast<A*>(out), columns);
  } else {
    reduce<T>(from, parts, pitch, static_cast<T*>(out), columns);
  }
}

}  // namespace hipnorm::cpu::HIPNORM_ISA
