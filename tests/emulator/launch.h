// Launches: a kernel runs to its end, or to its first fault, before launch_kernel returns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/emulator/host.h"

namespace hipnorm::gpu {

struct Grid {
  std::int64_t blocks;
  int threads;  // of a block
  std::size_t lds_bytes;
  int cluster = 1;           // blocks that are resident together and reach each other's LDS
  bool cooperative = false;  // all blocks are resident together
  bool early = false;        // of no consequence here: launches end one after the other
  hipStream_t stream = nullptr;
};

}  // namespace hipnorm::gpu

namespace hipnorm::emulator {

struct Call {
  void (*run)(const Call&);  // one thread
  void (*kernel)();
  const void* args;
  const char* args_type;  // names the kernel where its symbol cannot be found
};
hipError_t launch(const Call& call, const gpu::Grid& grid, int wave);

}  // namespace hipnorm::emulator
