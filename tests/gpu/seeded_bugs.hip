// One bug for each tool of compute-sanitizer: a tool that says nothing here says nothing about the
// kernels either. Run by sanitize.sh: seeded_bugs memcheck|racecheck|synccheck|initcheck.
#include <cstdio>
#include <cstring>

#include "kernels/gpu/prepare.h"

namespace hipnorm::gpu {
namespace {

struct Args {
  float* data;
  int count;
};

__global__ void writes_past_the_end(Args args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i <= args.count) args.data[i] = 1;
}

__global__ void reads_a_neighbour_without_a_barrier(Args args) {
  const Lds<float> lds = lds_at<float>(0);
  const int i = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  lds[i] = static_cast<float>(i);
  if (i < args.count) args.data[i] = lds[(i + threads / 2) % threads];
}

__global__ void half_a_wave_at_a_barrier(Args args) {
  if (threadIdx.x % kWave < kWave / 2) __syncthreads();
  if (static_cast<int>(threadIdx.x) < args.count) args.data[threadIdx.x] = 1;
}

__global__ void reads_what_nobody_wrote(Args args) {
  const int i = static_cast<int>(threadIdx.x);
  if (i + 1 < args.count) args.data[i] = args.data[i + 1] + 1;
}

int run(void (*kernel)(Args)) {
  void* memory = nullptr;
  hipError_t error = hipMalloc(&memory, 255 * sizeof(float));
  const Args args{static_cast<float*>(memory), 255};
  if (error == hipSuccess) {
    error = launch_kernel(kernel, {.blocks = 1, .threads = 256, .lds_bytes = 1024}, args);
  }
  if (error == hipSuccess) error = hipDeviceSynchronize();
  static_cast<void>(hipFree(memory));
  if (error != hipSuccess) std::fprintf(stderr, "%s\n", hipGetErrorString(error));
  return error != hipSuccess;
}

}  // namespace
}  // namespace hipnorm::gpu

int main(int argc, char** argv) {
  using namespace hipnorm::gpu;
  const struct {
    const char* tool;
    void (*kernel)(Args);
  } bugs[] = {{"memcheck", writes_past_the_end},
              {"racecheck", reads_a_neighbour_without_a_barrier},
              {"synccheck", half_a_wave_at_a_barrier},
              {"initcheck", reads_what_nobody_wrote}};
  for (const auto& bug : bugs) {
    if (argc == 2 && std::strcmp(argv[1], bug.tool) == 0) return run(bug.kernel);
  }
  std::fprintf(stderr, "expected memcheck, racecheck, synccheck or initcheck\n");
  return 2;
}
