// A typed array between guards: what is written outside shows, what is read outside is NaN.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "csrc/dispatch/problem.h"
#include "tests/reference/number_format.h"

namespace hipnorm::testing {

// Contents and guards start as bytes of ones, NaN in every format. With AddressSanitizer the guards
// may not be touched at all.
class Array {
 public:
  Array() = default;
  // Starts `offset` bytes after a multiple of 64.
  Array(DType dtype, std::int64_t count, int offset = 0);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  DType dtype() const { return dtype_; }
  std::int64_t count() const { return count_; }
  std::int64_t bytes() const { return count_ * size_of(dtype_); }
  void* data() { return data_; }
  const void* data() const { return data_; }
  double operator[](std::int64_t i) const { return reference::load(dtype_, data_, i); }
  // Rounds to the nearest number of the format.
  void set(std::int64_t i, double value) { reference::store(dtype_, data_, i, value); }

  // Contents with the guards on both sides, for copies to a GPU and back. Null for an empty Array.
  void* block() { return block_; }
  const void* block() const { return block_; }
  std::int64_t block_bytes() const { return data_ + bytes() + kGuard - block_; }

  bool guards_intact() const;
  bool same_bits(const Array& other) const {
    return bytes() == other.bytes() &&
           (bytes() == 0 || std::memcmp(data_, other.data_, std::size_t(bytes())) == 0);
  }

 private:
  static constexpr std::int64_t kGuard = 256;  // bytes on each side
  DType dtype_ = DType::none;
  std::int64_t count_ = 0;
  unsigned char* block_ = nullptr;  // the front guard's start
  unsigned char* data_ = nullptr;
};

}  // namespace hipnorm::testing
