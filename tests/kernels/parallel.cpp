#include "tests/kernels/parallel.h"

#include <thread>

namespace hipnorm::testing {

void in_order(std::int64_t tasks, Task task, void* data) {
  for (std::int64_t i = 0; i < tasks; ++i) task(data, i);
}

void in_reverse(std::int64_t tasks, Task task, void* data) {
  for (std::int64_t i = tasks; i > 0; --i) task(data, i - 1);
}

void on_two_threads(std::int64_t tasks, Task task, void* data) {
  const auto every_other = [=](std::int64_t first) {
    for (std::int64_t i = first; i < tasks; i += 2) task(data, i);
  };
  std::thread odd(every_other, 1);
  every_other(0);
  odd.join();
}

}  // namespace hipnorm::testing
