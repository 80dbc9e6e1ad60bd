// LDS: Lds<T> has the operators of a pointer and checks every access.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/emulator/device.h"

namespace hipnorm::emulator {

[[noreturn]] void bad_lds_access(std::ptrdiff_t offset, std::size_t size, std::size_t alignment,
                                 Site site);
void on_lds_access(std::ptrdiff_t offset, std::size_t size, Site site);

// The address of `size` bytes at `offset` in the running thread's block.
inline unsigned char* lds_address(std::ptrdiff_t offset, std::size_t size, std::size_t alignment,
                                  Site site) {
  const BlockContext& block = *current->block;
  if (offset < 0 || offset > block.lds_bytes - static_cast<std::ptrdiff_t>(size) ||
      static_cast<std::size_t>(offset) % alignment != 0) [[unlikely]] {
    bad_lds_access(offset, size, alignment, site);
  }
  if (block.watches_lds) [[unlikely]] {
    on_lds_access(offset, size, site);
  }
  return block.lds + offset;
}

// An index, and where it was written: p[i] has no room for a default argument (C++20).
struct Index {
  template <class I>
    requires std::is_integral_v<I> || std::is_enum_v<I>
  constexpr Index(I i, Site s = Site::current())  // NOLINT: an index is an integer
      : value(static_cast<std::ptrdiff_t>(i)), site(s) {}
  std::ptrdiff_t value;
  Site site;
};

}  // namespace hipnorm::emulator

namespace hipnorm::gpu {

// A place in the LDS of the thread's own block. The same for every block: a byte offset.
template <class T>
class Lds {
 public:
  using element_type = T;
  Lds() = default;
  constexpr Lds(std::nullptr_t) {}  // NOLINT: as a pointer
  constexpr explicit Lds(std::ptrdiff_t byte_offset) : offset_(byte_offset) {}
  template <class U>
    requires std::is_same_v<const U, T>
  constexpr Lds(Lds<U> other) : offset_(other.byte_offset()) {}  // NOLINT: as T* to const T*

  constexpr std::ptrdiff_t byte_offset() const { return offset_; }

  T& operator[](emulator::Index i) const { return at(offset_ + i.value * kSize, i.site); }
  T& operator*() const { return at(offset_, {}); }
  T* operator->() const { return &at(offset_, {}); }

  constexpr Lds& operator+=(std::ptrdiff_t n) {
    offset_ += n * kSize;
    return *this;
  }
  constexpr Lds& operator-=(std::ptrdiff_t n) { return *this += -n; }
  constexpr Lds& operator++() { return *this += 1; }
  constexpr Lds& operator--() { return *this += -1; }
  constexpr Lds operator++(int) {
    const Lds before = *this;
    *this += 1;
    return before;
  }
  constexpr Lds operator--(int) {
    const Lds before = *this;
    *this += -1;
    return before;
  }
  friend constexpr Lds operator+(Lds p, std::ptrdiff_t n) { return p += n; }
  friend constexpr Lds operator+(std::ptrdiff_t n, Lds p) { return p += n; }
  friend constexpr Lds operator-(Lds p, std::ptrdiff_t n) { return p -= n; }
  friend constexpr std::ptrdiff_t operator-(Lds p, Lds q) {
    return (p.offset_ - q.offset_) / kSize;
  }
  friend constexpr auto operator<=>(Lds, Lds) = default;
  friend constexpr bool operator==(Lds, Lds) = default;
  constexpr explicit operator bool() const { return offset_ != kNull; }

 private:
  static constexpr std::ptrdiff_t kSize = sizeof(T);
  static constexpr std::ptrdiff_t kNull = std::numeric_limits<std::ptrdiff_t>::min() / 2;
  static T& at(std::ptrdiff_t offset, emulator::Site site) {
    return *reinterpret_cast<T*>(emulator::lds_address(offset, sizeof(T), alignof(T), site));
  }
  std::ptrdiff_t offset_ = kNull;
};

template <class T>
constexpr Lds<T> lds_at(std::size_t byte_offset) {
  return Lds<T>(static_cast<std::ptrdiff_t>(byte_offset));
}
template <class U, class T>
constexpr Lds<U> lds_cast(Lds<T> p) {
  return Lds<U>(p.byte_offset());
}

}  // namespace hipnorm::gpu
