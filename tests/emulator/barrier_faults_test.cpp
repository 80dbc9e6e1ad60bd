// Barriers and shuffles that are missing or not met by all: each bug is caught, and its mended twin
// runs under every schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/emulator/under_schedules.h"

namespace hipnorm::testing {
namespace {

using gpu::Lds;
using gpu::lds_at;

struct Args {
  bool mended;
  float* out;
};
constexpr int kThreads = 4 * kWave;

// One block of kThreads threads, each of which writes a float.
class EmulatorBarrierFaults : public ::testing::Test {
 protected:
  Launch launch(void (*kernel)(Args), bool mended, int threads = kThreads) {
    return [=, this] {
      std::fill(out.begin(), out.end(), NAN);
      return gpu::launch_kernel(
          kernel, {.blocks = 1, .threads = threads, .lds_bytes = 2 * kThreads * sizeof(float)},
          Args{mended, out.data()});
    };
  }
  template <class F>
  Right equals(F expected) {
    return [=, this] {
      for (int i = 0; i < kThreads; ++i) {
        if (out[std::size_t(i)] != float(expected(i))) return false;
      }
      return true;
    };
  }
  std::vector<float> out = std::vector<float>(kThreads);
};

// ---- A value read before it is written -------------------------------------------------------

__global__ void read_after_write(Args args) {
  const Lds<float> slot = lds_at<float>(0);
  slot[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (args.mended) __syncthreads();
  args.out[threadIdx.x] = slot[blockDim.x - 1 - threadIdx.x];
}

TEST_F(EmulatorBarrierFaults, ReadAfterWrite) {
  const auto right = equals([](int i) { return kThreads - 1 - i; });
  expect_right(launch(read_after_write, true), right);
  expect_caught(launch(read_after_write, false), right, {}, 1);
  expect_fault(launch(read_after_write, false),
               {"kernel read_after_write, block 0, thread ", "race: ", " LDS byte "});
}

// ---- A slot used anew while a slow wave still reads what was in it ----------------------------

__global__ void write_after_read(Args args) {
  const Lds<float> slot = lds_at<float>(0);
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) slot[0] = static_cast<float>(round + 1);
    __syncthreads();
    sum += slot[0];
    if (args.mended) __syncthreads();
  }
  args.out[threadIdx.x] = sum;
}

TEST_F(EmulatorBarrierFaults, WriteAfterReadThroughAReusedSlot) {
  const auto right = equals([](int) { return 6; });
  expect_right(launch(write_after_read, true), right);
  expect_caught(launch(write_after_read, false), right, {}, 2);
  expect_fault(launch(write_after_read, false), {"race: ", " LDS byte 0, which thread "});
}

// ---- Lanes of one wave -----------------------------------------------------------------------

__global__ void within_a_wave(Args args) {
  const Lds<float> slot = lds_at<float>(0) + threadIdx.x / kWave * kWave;
  const unsigned lane = threadIdx.x % kWave;
  slot[lane] = static_cast<float>(threadIdx.x);
  if (args.mended) gpu::wave_sync();
  args.out[threadIdx.x] = slot[lane ^ 1];
}

TEST_F(EmulatorBarrierFaults, WaveSync) {
  const auto right = equals([](int i) { return i ^ 1; });
  expect_right(launch(within_a_wave, true), right);
  expect_caught(launch(within_a_wave, false), right, {}, 1);
  expect_fault(launch(within_a_wave, false), {"race: ", "and nothing orders the two"});
}

// ---- A row of partial sums that nobody wrote -------------------------------------------------

__global__ void partial_rows(Args args) {
  const Lds<float> partial = lds_at<float>(0);
  const unsigned wave = threadIdx.x / kWave;
  const unsigned rows = args.mended ? 4 : 3;  // wave 3 believes it has no work
  if (threadIdx.x % kWave == 0 && wave < rows) partial[wave] = 1;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < 4; ++w) sum += partial[w];
  args.out[threadIdx.x] = sum;
}

TEST_F(EmulatorBarrierFaults, UninitialisedPartialRow) {
  const auto right = equals([](int) { return 4; });
  expect_right(launch(partial_rows, true), right);
  expect_caught(launch(partial_rows, false), right, {}, 1);
}

// ---- 32 lanes taken for granted --------------------------------------------------------------

__global__ void waves_of_32(Args args) {
  const int width = args.mended ? kWave : 32;
  const float leader = __shfl(static_cast<float>(threadIdx.x), 0);
  args.out[threadIdx.x] = leader - static_cast<float>(threadIdx.x / width * width);
}

TEST_F(EmulatorBarrierFaults, WaveOf32LanesTakenForGranted) {
  const auto right = equals([](int) { return 0; });
  expect_right(launch(waves_of_32, true), right);
  if (kWave == 32) {
    expect_right(launch(waves_of_32, false), right);
  } else {
    expect_caught(launch(waves_of_32, false), right, {}, 1);
  }
}

// ---- Barriers that not all threads reach -----------------------------------------------------

__global__ void early_exit(Args args) {
  if (threadIdx.x >= 3 * kWave && !args.mended) return;  // a whole wave without work
  __syncthreads();
  args.out[threadIdx.x] = 1;
}
__global__ void half_a_wave(Args args) {
  if (args.mended || threadIdx.x % 2 == 0) __syncthreads();
  gpu::wave_sync();
  args.out[threadIdx.x] = 1;
}
__global__ void one_barrier_more(Args args) {
  const bool first = threadIdx.x < kWave;
  for (int i = 0; i < (args.mended || first ? 3 : 2); ++i) __syncthreads();
  args.out[threadIdx.x] = 1;
}
// A producing wave counts its barriers elsewhere in the code: no fault.
__global__ void specialised_waves(Args args) {
  if (threadIdx.x < kWave) {
    for (int i = 0; i < 3; ++i) __syncthreads();
  } else {
    __syncthreads();
    __syncthreads();
    __syncthreads();
  }
  args.out[threadIdx.x] = 1;
}

TEST_F(EmulatorBarrierFaults, DivergentBarrier) {
  const auto right = equals([](int) { return 1; });
  for (const auto kernel : {early_exit, half_a_wave, one_barrier_more}) {
    expect_right(launch(kernel, true), right);
  }
  expect_right(launch(specialised_waves, true), right);
  expect_fault(launch(early_exit, false),
               {"kernel early_exit, block 0, thread ", "divergent barrier", "exited"});
  expect_fault(launch(half_a_wave, false), {"kernel half_a_wave", "barrier_faults_test.cpp:",
                                            "__syncthreads", "wave_sync", "inactive lane"});
  expect_fault(launch(one_barrier_more, false), {"one_barrier_more", "divergent barrier"});
}

// ---- Shuffles that not all lanes reach -------------------------------------------------------

__global__ void exited_lane(Args args) {
  args.out[threadIdx.x] = 1;
  if (!args.mended && threadIdx.x % kWave == 5) return;
  args.out[threadIdx.x] = __shfl_xor(1.0f, 4);
}
__global__ void absent_lane(Args args) {
  const int last = args.mended ? 2 : kWave - 1;  // of a block of 3 threads
  args.out[threadIdx.x] = __shfl(1.0f, last);
}
__global__ void two_branches(Args args) {
  if (args.mended || threadIdx.x % 2 == 0) {
    args.out[threadIdx.x] = __shfl_xor(1.0f, 1);
  } else {
    args.out[threadIdx.x] = __shfl_xor(1.0f, 1);
  }
}
__global__ void unequal_loops(Args args) {
  float value = 1;
  const int rounds = args.mended ? 4 : 3 + static_cast<int>(threadIdx.x % 2);
  for (int i = 0; i < rounds; ++i) value = __shfl_xor(value, 1);
  gpu::wave_sync();
  args.out[threadIdx.x] = value;
}
__global__ void bad_width(Args args) {
  args.out[threadIdx.x] = __shfl_xor(1.0f, 1, args.mended ? 8 : 12);
}
// An exited lane that nobody reads does no harm.
__global__ void unread_lane(Args args) {
  args.out[threadIdx.x] = 1;
  if (threadIdx.x % kWave == 5) return;
  args.out[threadIdx.x] = __shfl(1.0f, 4);
}

TEST_F(EmulatorBarrierFaults, ShuffleFromAnInactiveLane) {
  const auto right = equals([](int) { return 1; });
  for (const auto kernel : {exited_lane, two_branches, unequal_loops, bad_width, unread_lane}) {
    expect_right(launch(kernel, true), right);
  }
  expect_right(launch(absent_lane, true, 3), [&] { return out[2] == 1; });
  expect_fault(launch(exited_lane, false),
               {"exited_lane", "__shfl_xor reads from the inactive lane 5, which has exited"});
  expect_fault(launch(absent_lane, false, 3),
               {"absent_lane", "inactive lane " + std::to_string(kWave - 1)});
  expect_fault(launch(two_branches, false), {"two_branches", "inactive lane"});
  expect_fault(launch(unequal_loops, false), {"unequal_loops", "inactive lane"});
  expect_fault(launch(bad_width, false), {"width 12", "power of two"});
}

// ---- LDS outside, LDS misaligned -------------------------------------------------------------

__global__ void lds_bounds(Args args) {
  const unsigned past = args.mended ? 0 : 1;
  lds_at<float>(0)[blockDim.x + threadIdx.x + past] = 1;
  args.out[threadIdx.x] = 1;
}
__global__ void lds_before(Args args) {
  const int before = args.mended ? 0 : 1;
  (lds_at<float>(0) + threadIdx.x)[-before] = 1;
  args.out[threadIdx.x] = 1;
}
__global__ void lds_alignment(Args args) {
  const std::size_t offset = args.mended ? 8 : 4;
  if (threadIdx.x < 4) gpu::lds_cast<double>(lds_at<float>(offset))[threadIdx.x] = 1;
  args.out[threadIdx.x] = 1;
}
__global__ void lds_null(Args args) {
  const Lds<float> none = args.mended ? lds_at<float>(0) : nullptr;
  if (threadIdx.x == 0) *none = 1;
  args.out[threadIdx.x] = 1;
}

TEST_F(EmulatorBarrierFaults, LdsOutOfBoundsOrMisaligned) {
  const auto right = equals([](int) { return 1; });
  for (const auto kernel : {lds_bounds, lds_before, lds_null}) {
    expect_right(launch(kernel, true), right);
    expect_fault(launch(kernel, false),
                 {"kernel lds_", "LDS byte ",
                  "out of bounds, the block has " + std::to_string(8 * kThreads)});
  }
  expect_right(launch(lds_alignment, true), right);
  expect_fault(launch(lds_alignment, false), {"misaligned", "multiple of 8"});
}

}  // namespace
}  // namespace hipnorm::testing
