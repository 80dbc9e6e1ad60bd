#include "tests/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace hipnorm::emulator {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 << 10;  // frames with red zones
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif
// Stacks lie at multiples of the page size, so their hot ends would fall into the same few sets of
// the caches. They start at one of 256 lines instead.
constexpr std::size_t kColours = 256, kLine = 64;

// On the stack that was switched to: where the other one stands.
void arrive(transfer_t transfer, Strand* self) {
  Strand* from = static_cast<Strand*>(transfer.data);
  from->context = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self != nullptr ? self->fake_stack : nullptr, &stack, &bytes);
  if (from->stack == nullptr) {  // the processor thread's own stack, known only now
    from->stack = static_cast<char*>(const_cast<void*>(stack));
    from->stack_bytes = bytes;
  }
#else
  static_cast<void>(self);
#endif
}

void (*first_call)() = nullptr;  // of every strand

void begin(transfer_t transfer) {
  arrive(transfer, nullptr);
  first_call();
}

}  // namespace

void switch_strand(Strand& from, Strand& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
  arrive(jump_fcontext(to.context, &from), &from);
}

void Stacks::provide(std::size_t count, void (*entry)()) {
  first_call = entry;
  const std::size_t old = strands_.size();
  if (count <= old) return;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t stride = page + kStackBytes;
  // Address space only; pages come when they are touched, two or three a stack.
  const std::size_t bytes = (count - old) * stride;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  regions_.push_back({static_cast<char*>(memory), bytes});
  for (std::size_t i = old; i < count; ++i) {
    char* guard = static_cast<char*>(memory) + (i - old) * stride;
    if (mprotect(guard, page, PROT_NONE) != 0) throw std::bad_alloc();
    strands_.push_back({nullptr, guard + page, kStackBytes, nullptr});
    start(strands_.back(), i);
  }
}

void Stacks::start(Strand& strand, std::size_t i) {
  // 97 and 256 have no common divisor: neighbours lie apart, and every colour is used.
  const std::size_t colour = i * 97 % kColours * kLine;
  const std::size_t bytes = strand.stack_bytes - colour;
  strand.context = make_fcontext(strand.stack + bytes, bytes, begin);
  strand.fake_stack = nullptr;
}

void Stacks::drop_all() {
  for (std::size_t i = 0; i < strands_.size(); ++i) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(strands_[i].stack, strands_[i].stack_bytes);
#endif
    start(strands_[i], i);
  }
}

Stacks::~Stacks() {
  for (const Region& region : regions_) munmap(region.memory, region.bytes);
}

}  // namespace hipnorm::emulator
