// torch's threads, in the form in which the CPU kernels ask for them.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

namespace hipnorm {

// A ParallelFor (kernels/launch.h): task(data, i) once for each i in [0, tasks). The kernels cut
// their work into as many tasks as they want threads, so the grain is one task.
inline void torch_parallel_for(std::int64_t tasks, void (*task)(void* data, std::int64_t i),
                               void* data) {
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) task(data, i);
  });
}

// Threads that torch_parallel_for would use if it was called now.
inline int torch_threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

}  // namespace hipnorm
