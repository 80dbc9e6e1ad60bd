// The border between torch and the kernels: one launch function per operation. Raw pointers, sizes,
// a config, a stream in; an error out. No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// nullopt: done (CPU) or queued (GPU). Otherwise what failed: kernel, config, problem, reason.
using Error = std::optional<std::string>;

// Runs task(data, i) once for each i in [0, tasks), in parallel, and returns when all have ended.
// The caller hands it in, so that the kernels share torch's threads without knowing torch.
using ParallelFor = void (*)(std::int64_t tasks, void (*task)(void* data, std::int64_t i),
                             void* data);

// Where and how to run. `config` has passed validate(), `plan` is plan(config, problem, device).
struct Launch {
  const Problem& problem;
  const Device& device;
  const Config& config;
  const Plan& plan;
  ParallelFor parallel_for = nullptr;  // CPU
  void* stream = nullptr;              // GPU
};

// M = problem.rows, N = problem.cols. x, y: problem.x; weight, bias: problem.weight; mean, rstd:
// f32, f64 for f64 input. Row strides are in elements; every row's N elements are contiguous.
//   mean = Σx/N,  rstd = 1/√(Σ(x − mean)²/N + eps),  y = (x − mean)·rstd·weight + bias
// (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, eq. 3 with eps inside the root.)
// A constant row has x̂ = 0 and y = bias, with eps = 0 too, where its rstd is Inf. A row whose
// variance overflows the accumulate type has rstd = 0 and y = bias; its mean may be anything but
// NaN. A row with Inf or NaN is NaN alone.
struct ForwardArgs {
  const void* x = nullptr;  // [M, N]
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // [N] or null
  const void* bias = nullptr;    // [N] or null
  double eps = 1e-5;
  void* y = nullptr;          // [M, N], contiguous
  void* mean = nullptr;       // [M]
  void* rstd = nullptr;       // [M]
  void* workspace = nullptr;  // plan.workspace_bytes, 64-byte aligned, contents undefined
};
Error launch_forward(const ForwardArgs& args, const Launch& launch);

// With x̂ = (x − mean)·rstd (0 where rstd is 0 or Inf, and then dx = 0), g = dy·weight, c1 = Σg/N,
// c2 = Σg·x̂/N (sums over a row): dx = rstd·(g − c1 − x̂·c2); dweight = Σdy·x̂, dbias = Σdy (sums over
// the M rows, in a fixed order: two runs agree bit for bit).
struct BackwardArgs {
  const void* dy = nullptr;  // [M, N], problem.x
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // [M, N]
  std::int64_t x_stride = 0;
  const void* mean = nullptr;    // [M]
  const void* rstd = nullptr;    // [M]
  const void* weight = nullptr;  // [N] or null
  void* dx = nullptr;            // [M, N], contiguous; null unless problem.grads.dx
  void* dweight = nullptr;       // [N], problem.weight; null unless problem.grads.dweight
  void* dbias = nullptr;         // [N], problem.weight; null unless problem.grads.dbias
  void* workspace = nullptr;     // plan.workspace_bytes, 64-byte aligned, contents undefined
};
Error launch_backward(const BackwardArgs& args, const Launch& launch);

// The CPU as dispatch sees it, when parallel_for uses `threads` threads. Caches and SIMD width are
// read from the machine; HIPNORM_CPU_CAPABILITY=baseline|avx2|avx512 (read once) lowers the width.
// Throws std::invalid_argument on an unknown capability or one that the processor lacks.
const Device& cpu_device(int threads);

// GPU number `index` as the runtime counts them, read once from the runtime. From any thread; the
// calling thread's current device is left as it was. Throws std::invalid_argument for a device
// whose architecture this build has no kernels for, and in a build without GPU kernels;
// std::runtime_error, with the runtime's words, where the runtime fails.
const Device& gpu_device(int index);

// Whether this build has GPU kernels.
bool has_gpu_kernels();

}  // namespace hipnorm
