// Ways to run a kernel's tasks: whatever the order, the result must be the same bit for bit.
#pragma once

#include <cstdint>

namespace hipnorm::testing {

using Task = void (*)(void* data, std::int64_t i);

// On the caller's thread: first to last, last to first.
void in_order(std::int64_t tasks, Task task, void* data);
void in_reverse(std::int64_t tasks, Task task, void* data);
// On two threads at once, even ones on one and odd ones on the other.
void on_two_threads(std::int64_t tasks, Task task, void* data);

}  // namespace hipnorm::testing
