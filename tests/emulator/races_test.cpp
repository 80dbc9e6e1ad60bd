// Races in LDS are found whatever the schedule, and order in all its forms is no race.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulator/under_schedules.h"

namespace hipnorm::testing {
namespace {

using gpu::AsyncBarrier;
using gpu::Lds;
using gpu::lds_at;

struct Args {
  bool mended;
  const float* in;
};
constexpr int kThreads = 3 * kWave;
constexpr std::size_t kBarriers = 2048;

class EmulatorRaces : public ::testing::Test {
 protected:
  // No result shows the bug: it is the detector that finds it.
  void check(void (*kernel)(Args), const std::vector<std::string>& words) {
    const auto launch = [&](bool mended) {
      return [=, this] {
        return gpu::launch_kernel(
            kernel, {.blocks = 2, .threads = kThreads, .lds_bytes = kBarriers + 64, .cluster = 2},
            Args{mended, in});
      };
    };
    expect_right(launch(true), [] { return true; });
    expect_fault(launch(false), words);
  }
  alignas(16) float in[4] = {1, 2, 3, 4};
};

__device__ int wave() { return static_cast<int>(threadIdx.x) / kWave; }
__device__ int lane() { return static_cast<int>(threadIdx.x) % kWave; }
__device__ Lds<AsyncBarrier> barriers(int count, unsigned arrivals) {
  const auto barrier = lds_at<AsyncBarrier>(kBarriers);
  if (threadIdx.x == 0) {
    for (int i = 0; i < count; ++i) gpu::barrier_init(barrier + i, arrivals);
    gpu::barrier_init_fence();
  }
  __syncthreads();
  return barrier;
}

// ---- Neighbours ------------------------------------------------------------------------------

// Two bytes each; mended or else in pairs of threads.
__global__ void neighbours(Args args) {
  const unsigned i = args.mended ? threadIdx.x : threadIdx.x / 2;
  lds_at<std::uint16_t>(0)[i] = static_cast<std::uint16_t>(threadIdx.x);
}
TEST_F(EmulatorRaces, ElementsOfTwoBytes) {
  check(neighbours, {"race: writes LDS byte ", " wrote (races_test.cpp:"});
}

// ---- Many readers ----------------------------------------------------------------------------

__global__ void readers_then_writer(Args args) {
  const Lds<float> slot = lds_at<float>(0);
  if (threadIdx.x == 0) slot[0] = 1;
  __syncthreads();
  const float value = slot[0];
  if (args.mended) __syncthreads();
  if (threadIdx.x == kThreads - 1) slot[0] = value + 1;
}
TEST_F(EmulatorRaces, WriteAfterManyReads) {
  check(readers_then_writer, {"race: ", "LDS byte 0, which thread "});
}

// ---- Order through AsyncBarriers -------------------------------------------------------------

// Wave 0 hands a value to wave 1, which hands it to wave 2; no __syncthreads.
__global__ void chain(Args args) {
  const auto barrier = barriers(2, kWave);
  const Lds<float> slot = lds_at<float>(0);
  if (wave() == 0) {
    if (lane() == 5) slot[0] = 1;
    gpu::barrier_arrive(barrier);
  } else if (wave() == 1) {
    if (args.mended || lane() != 7) gpu::barrier_wait(barrier, 0);
    if (lane() == 7) slot[1] = slot[0];
    gpu::barrier_arrive(barrier + 1);
  } else {
    gpu::barrier_wait(barrier + 1, 0);
    slot[2 + lane()] = slot[0] + slot[1];
  }
}
TEST_F(EmulatorRaces, ChainOfBarriers) { check(chain, {"race: ", "LDS byte 0"}); }

// One lane arrives for its wave: the others' accesses come before only with a wave_sync.
__global__ void elected(Args args) {
  const auto barrier = barriers(1, 1);
  const Lds<float> slot = lds_at<float>(0);
  if (wave() == 0) {
    slot[lane()] = static_cast<float>(lane());
    if (args.mended) gpu::wave_sync();
    if (lane() == 0) gpu::barrier_arrive(barrier);
  } else if (wave() == 1) {
    gpu::barrier_wait(barrier, 0);
    slot[kWave + lane()] = slot[lane()];
  }
}
TEST_F(EmulatorRaces, ElectedLaneArrives) { check(elected, {"race: "}); }

// One lane waits for its wave.
__global__ void elected_waits(Args args) {
  const auto barrier = barriers(1, kWave);
  const Lds<float> slot = lds_at<float>(0);
  if (wave() == 0) {
    slot[lane()] = static_cast<float>(lane());
    gpu::barrier_arrive(barrier);
  } else if (wave() == 1) {
    if (lane() == 0) gpu::barrier_wait(barrier, 0);
    if (args.mended) gpu::wave_sync();
    slot[kWave + lane()] = slot[lane()];
  }
}
TEST_F(EmulatorRaces, ElectedLaneWaits) { check(elected_waits, {"race: "}); }

// ---- Copies ----------------------------------------------------------------------------------

// A copy into bytes that other threads have just read.
__global__ void copy_after_read(Args args) {
  const auto barrier = barriers(1, 1);
  const Lds<float> slot = lds_at<float>(0);
  if (threadIdx.x < 4) {
    slot[threadIdx.x] = 1;
    gpu::fence_async();
  }
  __syncthreads();
  const float value = slot[threadIdx.x % 4];
  if (args.mended) __syncthreads();
  if (threadIdx.x == kThreads - 1) {
    gpu::barrier_arrive_expect(barrier, 16);
    gpu::copy_to_lds(gpu::lds_cast<unsigned char>(slot), args.in, 16, barrier);
    gpu::barrier_wait(barrier, 0);
  }
  lds_at<float>(16)[threadIdx.x] = value;
}
TEST_F(EmulatorRaces, CopyAfterRead) { check(copy_after_read, {"LDS byte "}); }

// A copy into bytes that other threads have just written: ordered, but not for the copy engine.
__global__ void copy_after_write(Args args) {
  const auto barrier = barriers(1, 1);
  const Lds<float> slot = lds_at<float>(0);
  if (threadIdx.x < 4) slot[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == kThreads - 1) {
    if (args.mended) gpu::fence_async();
    gpu::barrier_arrive_expect(barrier, 16);
    gpu::copy_to_lds(gpu::lds_cast<unsigned char>(slot), args.in, 16, barrier);
    gpu::barrier_wait(barrier, 0);
  }
}
TEST_F(EmulatorRaces, CopyAfterWrite) {
  check(copy_after_write, {"overwrites LDS byte 0, which thread 0 wrote (races_test.cpp:",
                           "without a fence_async between"});
}

// Thread 0 has waited for a copy; others need to wait too, or meet it after.
__global__ void awaited_by_one(Args args) {
  const auto barrier = barriers(1, 1);
  const Lds<float> slot = lds_at<float>(0);
  if (threadIdx.x == 0) {
    gpu::barrier_arrive_expect(barrier, 16);
    gpu::copy_to_lds(gpu::lds_cast<unsigned char>(slot), args.in, 16, barrier);
    gpu::barrier_wait(barrier, 0);
  }
  if (args.mended) __syncthreads();
  lds_at<float>(16)[threadIdx.x] = slot[threadIdx.x % 4];
}
TEST_F(EmulatorRaces, CopyAwaitedByAnotherThread) { check(awaited_by_one, {"LDS byte "}); }

// ---- The cluster's barrier -------------------------------------------------------------------

// Its arrival is relaxed on sm_90: what was written to LDS before is not published.
__global__ void cluster_barrier(Args args) {
  const Lds<std::uint16_t> slot = lds_at<std::uint16_t>(0), copy = slot + kThreads;
  slot[threadIdx.x] = 1;
  if (args.mended) __syncthreads();
  gpu::cluster_arrive();
  gpu::cluster_wait();
  copy[threadIdx.x] = slot[(threadIdx.x + kWave) % kThreads];
}
TEST_F(EmulatorRaces, ClusterBarrierDoesNotOrderLds) { check(cluster_barrier, {"race: "}); }

// ---- Turns between two meetings of a wave ----------------------------------------------------

// One lane of many arrives, and then reads: its arrival does not cover that.
__global__ void arrives_too_early(Args args) {
  const auto barrier = barriers(1, 2 * kWave);
  const Lds<float> slot = lds_at<float>(0);
  if (wave() != 1) {
    const bool early = !args.mended && threadIdx.x == 5;
    if (early) gpu::barrier_arrive(barrier);
    lds_at<float>(1024)[threadIdx.x] = slot[0];
    if (!early) gpu::barrier_arrive(barrier);
  } else {
    gpu::barrier_wait(barrier, 0);
    if (lane() == 0) slot[0] = 1;
  }
}
TEST_F(EmulatorRaces, ArrivalBeforeTheRead) {
  check(arrives_too_early, {"race: ", "LDS byte 0", "thread "});
}

}  // namespace
}  // namespace hipnorm::testing
