#include "tests/operators/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace hipnorm::testing {
namespace {

class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    bytes_ += static_cast<std::int64_t>(bytes);
    ++calls_;
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t calls() const { return calls_; }

 private:
  c10::Allocator* inner_;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> calls_ = 0;
};

// Installed at the first use, for the rest of the process: tensors outlive any scope.
const CountingAllocator& counter() {
  static CountingAllocator* const allocator = [] {
    auto* made = new CountingAllocator;
    c10::SetCPUAllocator(made, /*priority=*/255);
    return made;
  }();
  return *allocator;
}

}  // namespace

AllocationCount::AllocationCount()
    : bytes_before_(counter().bytes()), calls_before_(counter().calls()) {}
std::int64_t AllocationCount::bytes() const { return counter().bytes() - bytes_before_; }
std::int64_t AllocationCount::calls() const { return counter().calls() - calls_before_; }

}  // namespace hipnorm::testing
