// Where a cell is laid out: host memory and the processor, or a GPU. Moves bytes, compares them,
// takes time; what is checked, and in which order, is cell_workbench.cpp's, the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "csrc/dispatch/problem.h"
#include "kernels/launch.h"

namespace hipnorm::tune {

// Elements, or bytes, that are not what they have to be.
struct Faults {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // index of the first, where there are any
  double worst = 0;         // judge(): the largest misfit (allowed.h) of an element
};

// An output and what it may be, as reference::Bounds say; all three arrays on the platform.
struct Judged {
  DType dtype = DType::f32;  // f16, bf16 or f32
  bool must_be_nan = false;
  const char* got = nullptr;
  const char* low = nullptr;
  const char* high = nullptr;
  std::int64_t count = 0;  // elements
};

// Every call throws std::runtime_error where the device fails.
class Platform {
 public:
  virtual ~Platform() = default;

  // 64-byte aligned. Throws std::bad_alloc or std::runtime_error where there is not enough.
  virtual char* allocate(std::size_t bytes) = 0;
  virtual void release(char* memory) = 0;
  virtual void fill(char* to, std::size_t bytes) = 0;  // with 0xff: NaN in every format
  virtual void copy(char* to, const char* from, std::size_t bytes) = 0;
  virtual void upload(char* to, const char* host, std::size_t bytes) = 0;
  // Until everything that was launched is done.
  virtual void wait() = 0;

  // Bytes in which a differs from b, or from 0xff where b is null.
  virtual Faults differing(const char* a, const char* b, std::size_t bytes) = 0;
  virtual Faults judge(const Judged& output) = 0;

  // Seconds of one call with cold caches.
  virtual double time(const std::function<void()>& call) = 0;

  virtual ParallelFor parallel_for() const { return nullptr; }
  // Of the host, for the truth.
  virtual int threads() const = 0;
};

}  // namespace hipnorm::tune
