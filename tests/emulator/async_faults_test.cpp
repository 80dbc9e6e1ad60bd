// Asynchronous copies, their barriers and clusters used wrongly: each bug is caught, and its mended
// twin runs under every schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/emulator/under_schedules.h"

namespace hipnorm::testing {
namespace {

using gpu::AsyncBarrier;
using gpu::Lds;
using gpu::lds_at;

enum class Bug {
  none,
  no_wait,           // consumers do not wait for the copy
  no_wait_for_slot,  // the producer does not wait until the slot is empty
  late_parity,       // consumers wait for the phase before
  too_few_bytes,     // expected
  too_many_bytes,
  too_many_arrivals,
  no_arrival,
  no_init,
  no_fence,
  no_barrier_after_init,
  init_twice,
  overwritten_barrier,
  misaligned_target,
  misaligned_source,
  misaligned_bytes,
  outside_lds,
  never_awaited,
  wait_parity_2,
  two_copies_to_one_slot,
};
struct Args {
  Bug bug;
  const float* in;
  float* out;
};
constexpr int kStages = 2, kTiles = 6, kTile = 32;
constexpr unsigned kTileBytes = kTile * sizeof(float);
constexpr std::size_t kBarriers = kStages * kTileBytes;
constexpr std::size_t kLdsBytes = kBarriers + 2 * kStages * sizeof(AsyncBarrier);
constexpr int kThreads = 3 * kWave;

// Thread 0 copies tiles, the waves 1 and 2 sum them up.
__global__ void ring(Args args) {
  const Bug bug = args.bug;
  const Lds<float> stages = lds_at<float>(0);
  const Lds<AsyncBarrier> full = lds_at<AsyncBarrier>(kBarriers);
  const Lds<AsyncBarrier> empty = full + kStages;
  if (threadIdx.x == 0 && bug != Bug::no_init) {
    for (int s = 0; s < kStages; ++s) {
      gpu::barrier_init(full + s, 1);
      gpu::barrier_init(empty + s, bug == Bug::too_many_arrivals ? kWave : 2 * kWave);
    }
    if (bug == Bug::init_twice) gpu::barrier_init(full, 1);
    if (bug != Bug::no_fence) gpu::barrier_init_fence();
  }
  if (bug != Bug::no_barrier_after_init) __syncthreads();
  if (bug == Bug::overwritten_barrier) {
    if (threadIdx.x == 0) lds_at<float>(kBarriers)[0] = 0;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    for (int t = 0; t < kTiles; ++t) {
      const int s = t % kStages;
      const unsigned use = static_cast<unsigned>(t / kStages);
      if (bug != Bug::no_wait_for_slot) {
        gpu::barrier_wait(empty + s, bug == Bug::wait_parity_2 ? 2 : (use + 1) % 2);
      }
      unsigned expected = kTileBytes;
      if (bug == Bug::too_few_bytes) expected -= 16;
      if (bug == Bug::too_many_bytes) expected += 16;
      gpu::barrier_arrive_expect(full + s, expected);
      Lds<unsigned char> target = gpu::lds_cast<unsigned char>(stages + s * kTile);
      const float* source = args.in + t * kTile;
      unsigned bytes = kTileBytes;
      if (bug == Bug::misaligned_target) target += 4;
      if (bug == Bug::misaligned_source) ++source;
      if (bug == Bug::misaligned_bytes) bytes -= 8;
      if (bug == Bug::outside_lds) target += kLdsBytes - kTileBytes / 2;
      gpu::copy_to_lds(target, source, bytes, full + s);
      if (bug == Bug::two_copies_to_one_slot) {
        gpu::copy_to_lds(target, source, bytes, full + s);
      }
    }
  } else if (threadIdx.x >= kWave) {
    float sum = 0;
    for (int t = 0; t < kTiles; ++t) {
      const int s = t % kStages;
      const unsigned use = static_cast<unsigned>(t / kStages);
      if (bug == Bug::never_awaited && t == kTiles - 1) break;
      if (bug != Bug::no_wait) {
        gpu::barrier_wait(full + s, (use + (bug == Bug::late_parity ? 1 : 0)) % 2);
      }
      for (int i = 0; i < kTile; ++i) sum += stages[s * kTile + i];
      if (bug != Bug::no_arrival || threadIdx.x != kWave + 3) gpu::barrier_arrive(empty + s);
    }
    args.out[threadIdx.x] = sum;
  }
}

class EmulatorAsyncFaults : public ::testing::Test {
 protected:
  EmulatorAsyncFaults() {
    EXPECT_EQ(hipMalloc(&in, kTiles * kTileBytes + 16), hipSuccess);
    std::iota(in, in + kTiles * kTile + 4, 1.0f);
  }
  ~EmulatorAsyncFaults() override { EXPECT_EQ(hipFree(in), hipSuccess); }
  Launch launch(Bug bug) {
    return [=, this] {
      std::fill(out.begin(), out.end(), NAN);
      return gpu::launch_kernel(ring, {.blocks = 2, .threads = kThreads, .lds_bytes = kLdsBytes},
                                Args{bug, in, out.data()});
    };
  }
  Right right() {
    return [this] {
      return std::all_of(out.begin() + kWave, out.end(), [](float sum) {
        return sum == float(kTiles * kTile) * float(kTiles * kTile + 1) / 2;
      });
    };
  }
  float* in = nullptr;
  std::vector<float> out = std::vector<float>(kThreads);
};

TEST_F(EmulatorAsyncFaults, NoBug) { expect_right(launch(Bug::none), right()); }

TEST_F(EmulatorAsyncFaults, MissingWait) {
  expect_caught(launch(Bug::no_wait), right(), {}, 1);
  expect_caught(launch(Bug::late_parity), right(), {}, 1);
  expect_caught(launch(Bug::no_wait_for_slot), right(), {}, 2);
  // Read while in flight or landed by good luck; overwritten in flight or before all have read.
  for (const Bug bug : {Bug::no_wait, Bug::late_parity, Bug::no_wait_for_slot}) {
    expect_fault(launch(bug), {"LDS byte"});
  }
}

TEST_F(EmulatorAsyncFaults, BytesAndArrivals) {
  // Bytes that nobody expected, or too few: the phase does not end.
  expect_fault(launch(Bug::too_few_bytes),
               {"kernel ring, block ", "16 bytes completed", "nobody expected"});
  expect_fault(launch(Bug::too_many_bytes),
               {"deadlock", "wait at barrier_wait (async_faults_test.cpp:",
                "the AsyncBarrier at LDS byte 256, whose phase 0 lacks 0 arrivals and 16 bytes",
                "threads " + std::to_string(kWave) + "–" + std::to_string(3 * kWave - 1)});
  expect_fault(launch(Bug::no_arrival),
               {"deadlock: thread 0 of block ", "waits at barrier_wait", "lacks 1 arrivals"});
}

TEST_F(EmulatorAsyncFaults, Initialisation) {
  expect_fault(launch(Bug::no_init), {"AsyncBarrier at LDS byte ", "is uninitialised"});
  expect_fault(launch(Bug::overwritten_barrier), {"its bytes were overwritten"});
  expect_fault(launch(Bug::init_twice), {"initialised twice"});
  expect_fault(launch(Bug::no_fence), {"is used without a barrier_init_fence by thread 0"});
  expect_caught(launch(Bug::no_barrier_after_init), right(), {"initialis"}, 1);
}

TEST_F(EmulatorAsyncFaults, Arguments) {
  for (const Bug bug : {Bug::misaligned_target, Bug::misaligned_source, Bug::misaligned_bytes}) {
    expect_fault(launch(bug), {"thread 0 (async_faults_test.cpp:", "misaligned copy_to_lds"});
  }
  expect_fault(launch(Bug::outside_lds),
               {"copy_to_lds to bytes ", "outside the block's 288 bytes"});
  expect_fault(launch(Bug::wait_parity_2), {"parity 2"});
  // Found at its issue, or by what becomes of the bytes.
  expect_fault(launch(Bug::two_copies_to_one_slot), {"LDS byte"});
}

TEST_F(EmulatorAsyncFaults, CopyThatNobodyAwaits) {
  // It lands before the block ends in some schedules.
  expect_caught(launch(Bug::never_awaited), right(), {"unmatched asynchronous copy", "128 bytes"},
                2);
}

// ---- More arrivals than the count ------------------------------------------------------------

__global__ void one_arrival_more(Args args) {
  const Lds<AsyncBarrier> barrier = lds_at<AsyncBarrier>(16);
  if (threadIdx.x == 0) {
    gpu::barrier_init(barrier, 1);
    gpu::barrier_init_fence();
    gpu::barrier_arrive_expect(barrier, 16);
    if (args.bug == Bug::too_many_arrivals) gpu::barrier_arrive(barrier);
    gpu::copy_to_lds(lds_at<unsigned char>(0), args.in, 16, barrier);
    gpu::barrier_wait(barrier, 0);
  }
}

TEST_F(EmulatorAsyncFaults, MoreArrivalsThanTheCount) {
  const auto run = [&](Bug bug) {
    return [=, this] {
      return gpu::launch_kernel(one_arrival_more, {.blocks = 1, .threads = 1, .lds_bytes = 24},
                                Args{bug, in, nullptr});
    };
  };
  expect_right(run(Bug::none), [] { return true; });
  expect_fault(run(Bug::too_many_arrivals), {"more arrivals than the count 1"});
}

// ---- Clusters --------------------------------------------------------------------------------

enum class ClusterBug {
  none,
  no_first_barrier,  // posts to a block whose barrier may not be initialised
  no_last_barrier,   // a block ends that others may still post to
  no_wait,
  one_slot,  // for two rounds: a fast block overwrites what a slow one still has to read
  other_rank,
  rank_outside,
  arrive_twice,
  wait_alone,
  early_exit,
  slot_outside,
};
struct ClusterArgs {
  ClusterBug bug;
  float* out;
};
// Every rank but the last posts its number to the next one, which adds it up, in two rounds.
__global__ void neighbours(ClusterArgs args) {
  const ClusterBug bug = args.bug;
  const int rank = gpu::cluster_rank();
  const int size = 3;
  const Lds<float> slots = lds_at<float>(0);
  const Lds<AsyncBarrier> full = lds_at<AsyncBarrier>(16);
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) gpu::barrier_init(full + s, 1);
    gpu::barrier_init_fence();
  }
  if (bug == ClusterBug::no_first_barrier) {
    __syncthreads();
  } else {
    if (bug == ClusterBug::arrive_twice) gpu::cluster_arrive();
    if (bug != ClusterBug::wait_alone) gpu::cluster_arrive();
    gpu::cluster_wait();
  }
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    const Lds<float> slot = slots + (bug == ClusterBug::one_slot ? 0 : round);
    if (threadIdx.x == 0 && rank + 1 < size) {
      const auto there = gpu::remote(bug == ClusterBug::slot_outside ? slot + 8 : slot,
                                     bug == ClusterBug::rank_outside ? size : rank + 1);
      gpu::post(there, static_cast<float>(rank + 1 + 10 * round),
                gpu::remote(full + round, bug == ClusterBug::other_rank ? rank : rank + 1));
    }
    const bool awaits = bug != ClusterBug::no_wait && bug != ClusterBug::no_last_barrier;
    if (rank > 0 && (round == 0 || awaits)) {
      if (threadIdx.x == 0) gpu::barrier_arrive_expect(full + round, sizeof(float));
      gpu::barrier_wait(full + round, 0);
      sum += slot[0];
    }
  }
  args.out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (bug == ClusterBug::no_last_barrier) return;
  if (bug == ClusterBug::early_exit && rank == 1 && threadIdx.x == 7) return;
  gpu::cluster_arrive();
  gpu::cluster_wait();
}

TEST(EmulatorClusterFaults, Each) {
  constexpr int kBlockThreads = kWave, kBlocks = 6;
  std::vector<float> out(kBlocks * kBlockThreads);
  const auto launch = [&](ClusterBug bug) {
    return [&out, bug] {
      std::fill(out.begin(), out.end(), NAN);
      return gpu::launch_kernel(
          neighbours, {.blocks = kBlocks, .threads = kBlockThreads, .lds_bytes = 32, .cluster = 3},
          ClusterArgs{bug, out.data()});
    };
  };
  const Right right = [&] {
    for (int i = 0; i < kBlocks * kBlockThreads; ++i) {
      const int rank = i / kBlockThreads % 3;
      if (out[std::size_t(i)] != float(rank == 0 ? 0 : 2 * rank + 10)) return false;
    }
    return true;
  };
  expect_right(launch(ClusterBug::none), right);
  // A wait that is missing at the receiver leaves copies unmatched, or lets them come too late.
  expect_caught(launch(ClusterBug::no_last_barrier), right, {"unmatched asynchronous copy"}, 1);
  expect_caught(launch(ClusterBug::no_wait), right, {"unmatched asynchronous copy"}, 1);
  expect_caught(launch(ClusterBug::no_first_barrier), right, {"initialis"}, 1);
  expect_caught(launch(ClusterBug::one_slot), right, {"in flight"}, 2);
  expect_fault(launch(ClusterBug::other_rank), {"kernel neighbours", "both must lie in one block"});
  expect_fault(launch(ClusterBug::rank_outside), {"remote() to rank 3 of a cluster of 3"});
  expect_fault(launch(ClusterBug::arrive_twice), {"cluster_arrive twice"});
  expect_fault(launch(ClusterBug::wait_alone), {"cluster_wait without a cluster_arrive"});
  expect_fault(launch(ClusterBug::early_exit), {"divergent cluster barrier", "exited"});
  expect_fault(launch(ClusterBug::slot_outside), {"post of 4 bytes", "outside the block's 32"});
}

// ---- A block that ends while another posts to it ---------------------------------------------

struct LastPostArgs {
  bool final_barrier;
};
// Rank 1 posts what rank 0 takes only if it is still there: no wait, but the memory must be.
__global__ void last_post(LastPostArgs args) {
  const Lds<AsyncBarrier> full = lds_at<AsyncBarrier>(16);
  if (threadIdx.x == 0) {
    gpu::barrier_init(full, 1);
    gpu::barrier_init_fence();
  }
  gpu::cluster_arrive();
  gpu::cluster_wait();
  if (gpu::cluster_rank() == 1 && threadIdx.x == 0) {
    gpu::post(gpu::remote(lds_at<float>(0), 0), 1.0f, gpu::remote(full, 0));
  }
  if (!args.final_barrier) return;
  if (gpu::cluster_rank() == 0) {
    if (threadIdx.x == 0) gpu::barrier_arrive_expect(full, sizeof(float));
    gpu::barrier_wait(full, 0);
  }
  gpu::cluster_arrive();
  gpu::cluster_wait();
}

TEST(EmulatorClusterFaults, ExitWithoutFinalBarrier) {
  const auto launch = [](bool final_barrier) {
    return [=] {
      return gpu::launch_kernel(last_post,
                                {.blocks = 2, .threads = 2, .lds_bytes = 24, .cluster = 2},
                                LastPostArgs{final_barrier});
    };
  };
  expect_right(launch(true), [] { return true; });
  expect_caught(launch(false), [] { return true; }, {"unmatched asynchronous copy"}, 2);
}

}  // namespace
}  // namespace hipnorm::testing
