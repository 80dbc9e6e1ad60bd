#include "tests/kernels/array.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(0)
#endif

namespace hipnorm::testing {
namespace {

constexpr unsigned char kFill = 0xff;

}  // namespace

Array::Array(DType dtype, std::int64_t count, int offset) : dtype_(dtype), count_(count) {
  const std::int64_t size = kGuard + offset + bytes() + kGuard;
  block_ = static_cast<unsigned char*>(
      std::aligned_alloc(64, static_cast<std::size_t>((size + 63) / 64 * 64)));
  if (block_ == nullptr) throw std::bad_alloc();
  std::memset(block_, kFill, static_cast<std::size_t>(size));
  data_ = block_ + kGuard + offset;
  ASAN_POISON_MEMORY_REGION(block_, data_ - block_);
  ASAN_POISON_MEMORY_REGION(data_ + bytes(), kGuard);
}

Array::Array(Array&& other) noexcept { *this = std::move(other); }
Array& Array::operator=(Array&& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(count_, other.count_);
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  return *this;
}

Array::~Array() {
  if (block_ == nullptr) return;
  ASAN_UNPOISON_MEMORY_REGION(block_, data_ + bytes() + kGuard - block_);
  std::free(block_);
}

bool Array::guards_intact() const {
  if (block_ == nullptr) return true;
  const auto untouched = [](unsigned char byte) { return byte == kFill; };
  unsigned char* end = data_ + bytes();
  ASAN_UNPOISON_MEMORY_REGION(block_, data_ - block_);
  ASAN_UNPOISON_MEMORY_REGION(end, kGuard);
  const bool intact =
      std::all_of(block_, data_, untouched) && std::all_of(end, end + kGuard, untouched);
  ASAN_POISON_MEMORY_REGION(block_, data_ - block_);
  ASAN_POISON_MEMORY_REGION(end, kGuard);
  return intact;
}

}  // namespace hipnorm::testing
