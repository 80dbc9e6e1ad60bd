// What the benchmark has to know of the machine, and the state it puts the heap into.
#pragma once

#include <cstdint>
#include <string>

namespace hipnorm::bench {

// The processor's model name, "unknown CPU" where the system does not tell.
std::string cpu_model();

// Bytes of memory that this process can still use: what the kernel calls available, or less where a
// control group limits it. -1 where the system does not tell.
std::int64_t available_memory();

// Bytes of the last-level cache; 32 MiB where the system does not tell.
std::int64_t last_level_cache();

// How much of the machine others use: times taken beside another busy program are worth nothing.
class Neighbours {
 public:
  Neighbours();
  // The share of all processors' time since construction that went to other processes, and in a
  // virtual machine to the host's other guests; 0 where the system does not tell.
  double share() const;

 private:
  double total_;  // seconds of all processors
  double busy_;   // of them, not idle
  double own_;    // of them, this process
};

// How large blocks are allocated from now on, in this process. By default glibc maps a block of
// more than 32 MiB anew for every allocation and unmaps it when it is freed, so that a call that
// allocates its output spends most of its time in page faults (f32 2304x36864 backward: 177 ms
// instead of 40 ms).
//   resident: blocks come from the heap and the heap is never given back: an output lies on pages
//             that an earlier call has touched. What a caching allocator gives a running model.
//   fresh:    every block of 128 KiB and more is mapped anew.
enum class Pages : std::uint8_t { resident, fresh };
// False when the allocator knows no such settings (a sanitizer's, for one).
bool set_heap(Pages pages);

}  // namespace hipnorm::bench
