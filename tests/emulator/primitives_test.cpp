// What each primitive does when it is used as it should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/emulator/under_schedules.h"

namespace hipnorm::testing {
namespace {

using gpu::AsyncBarrier;
using gpu::Lds;
using gpu::lds_at;
using gpu::Pair;

// ---- Shuffles --------------------------------------------------------------------------------

struct ShuffleArgs {
  int argument, width;
  int* lanes;
  double* exclusive_or;
};
__global__ void shuffles(ShuffleArgs args) {
  const int lane = static_cast<int>(threadIdx.x);
  args.lanes[lane] = __shfl(100 + lane, args.argument, args.width);
  args.exclusive_or[lane] = __shfl_xor(0.5 + lane, args.argument, args.width);
}

TEST(EmulatorPrimitives, ShufflesInGroups) {
  for (int width = 1; width <= kWave; width *= 2) {
    for (const int argument : {0, 1, 3, width - 1, width / 2}) {
      std::vector<int> lanes(kWave);
      std::vector<double> exclusive_or(kWave);
      const auto launch = [&] {
        return gpu::launch_kernel(shuffles, {.blocks = 1, .threads = kWave, .lds_bytes = 0},
                                  ShuffleArgs{argument, width, lanes.data(), exclusive_or.data()});
      };
      expect_right(launch, [&] {
        for (int lane = 0; lane < kWave; ++lane) {
          const int group = lane / width * width;
          if (lanes[std::size_t(lane)] != 100 + group + argument % width) return false;
          const int partner = (lane ^ argument) >= group + width ? lane : lane ^ argument;
          if (exclusive_or[std::size_t(lane)] != 0.5 + partner) return false;
        }
        return true;
      });
    }
  }
}

// ---- LDS and barriers ------------------------------------------------------------------------

struct RotateArgs {
  int rounds;
  int* out;
};
// Each round every thread takes its neighbour's number; two slots, so one barrier a round.
__global__ void rotate(RotateArgs args) {
  Lds<int> slots[2] = {lds_at<int>(0), lds_at<int>(0) + blockDim.x};
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round < args.rounds; ++round) {
    const Lds<int> slot = slots[round % 2];
    slot[threadIdx.x] = value;
    __syncthreads();
    value = slot[(threadIdx.x + 1) % blockDim.x];
  }
  args.out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

TEST(EmulatorPrimitives, SyncthreadsOrdersLds) {
  for (const int threads : {1, 7, kWave, 3 * kWave, 5 * kWave + 9}) {
    std::vector<int> out(std::size_t(3 * threads));
    const auto launch = [&] {
      return gpu::launch_kernel(
          rotate,
          {.blocks = 3, .threads = threads, .lds_bytes = 2 * sizeof(int) * std::size_t(threads)},
          RotateArgs{5, out.data()});
    };
    expect_right(launch, [&] {
      for (int i = 0; i < 3 * threads; ++i) {
        if (out[std::size_t(i)] != (i + 5) % threads) return false;
      }
      return true;
    });
  }
}

struct FillArgs {
  std::uint32_t* out;
};
__global__ void read_fresh_lds(FillArgs args) {
  args.out[blockIdx.x] = *lds_at<std::uint32_t>(4);
  *lds_at<std::uint32_t>(4) = 7;
}

TEST(EmulatorPrimitives, LdsStartsAsNan) {
  std::vector<std::uint32_t> out(3);
  ASSERT_EQ(gpu::launch_kernel(read_fresh_lds, {.blocks = 3, .threads = 1, .lds_bytes = 8},
                               FillArgs{out.data()}),
            hipSuccess);
  EXPECT_EQ(out, std::vector<std::uint32_t>(3, 0xffffffff));
}

__global__ void wave_exchange(RotateArgs args) {
  const Lds<int> slot = lds_at<int>(0);
  const unsigned first = threadIdx.x / kWave * kWave;
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round < args.rounds; ++round) {
    slot[threadIdx.x] = value;
    gpu::wave_sync();
    value = slot[first + (threadIdx.x + 1) % kWave];
    gpu::wave_sync();
  }
  args.out[threadIdx.x] = value;
}

TEST(EmulatorPrimitives, WaveSyncOrdersLdsWithinAWave) {
  std::vector<int> out(3 * kWave);
  const auto launch = [&] {
    return gpu::launch_kernel(
        wave_exchange, {.blocks = 1, .threads = 3 * kWave, .lds_bytes = 3 * kWave * sizeof(int)},
        RotateArgs{4, out.data()});
  };
  expect_right(launch, [&] {
    for (int i = 0; i < 3 * kWave; ++i) {
      if (out[std::size_t(i)] != i / kWave * kWave + (i + 4) % kWave) return false;
    }
    return true;
  });
}

TEST(EmulatorPrimitives, LdsIsAPointer) {
  Lds<float> p = lds_at<float>(64);
  EXPECT_EQ((p + 3).byte_offset(), 76);
  EXPECT_EQ((3 + p) - p, 3);
  EXPECT_EQ(p++, lds_at<float>(64));
  EXPECT_EQ(--p, lds_at<float>(64));
  p += 5u;
  p -= 1;
  EXPECT_TRUE(p > lds_at<float>(64) && p != lds_at<float>(64));
  EXPECT_EQ(gpu::lds_cast<double>(p).byte_offset(), 80);
  const Lds<const float> read_only = p;
  EXPECT_EQ(read_only.byte_offset(), 80);
  EXPECT_FALSE(Lds<float>(nullptr));
  EXPECT_TRUE(lds_at<float>(0));
}

// ---- A ring of stages filled by asynchronous copies ------------------------------------------

struct RingArgs {
  const float* in;
  int tiles;
  float* out;
};
constexpr int kStages = 3;
constexpr int kTile = 64;  // floats
constexpr unsigned kTileBytes = kTile * sizeof(float);

// Wave 0 copies tiles, the others sum them up.
__global__ void ring(RingArgs args) {
  const Lds<float> stages = lds_at<float>(0);
  const Lds<AsyncBarrier> full = lds_at<AsyncBarrier>(kStages * kTileBytes);
  const Lds<AsyncBarrier> empty = full + kStages;
  const unsigned consumers = blockDim.x - kWave;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      gpu::barrier_init(full + s, 1);
      gpu::barrier_init(empty + s, consumers);
    }
    gpu::barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < kWave) {
    if (threadIdx.x == 0) {
      for (int t = 0; t < args.tiles; ++t) {
        const int s = t % kStages;
        const unsigned use = static_cast<unsigned>(t / kStages);
        gpu::barrier_wait(empty + s, (use + 1) % 2);  // at first: the phase before, complete
        gpu::barrier_arrive_expect(full + s, kTileBytes);
        gpu::copy_to_lds(gpu::lds_cast<unsigned char>(stages + s * kTile), args.in + t * kTile,
                         kTileBytes, full + s);
      }
    }
  } else {
    float sum = 0;
    for (int t = 0; t < args.tiles; ++t) {
      const int s = t % kStages;
      gpu::barrier_wait(full + s, static_cast<unsigned>(t / kStages) % 2);
      for (int i = 0; i < kTile; ++i) sum += stages[s * kTile + i];
      gpu::barrier_arrive(empty + s);
    }
    args.out[threadIdx.x - kWave] = sum;
  }
}

TEST(EmulatorPrimitives, RingOfStagesOverManyPhases) {
  for (const int tiles : {1, 2, 3, 4, 29}) {
    constexpr int kConsumers = 2 * kWave;
    std::vector<float> out(kConsumers);
    float* in = nullptr;
    ASSERT_EQ(hipMalloc(&in, std::size_t(tiles) * kTileBytes), hipSuccess);
    std::iota(in, in + tiles * kTile, 1.0f);
    const float expected = float(tiles * kTile) * float(tiles * kTile + 1) / 2;
    const auto launch = [&] {
      return gpu::launch_kernel(ring,
                                {.blocks = 1,
                                 .threads = kWave + kConsumers,
                                 .lds_bytes = kStages * (kTileBytes + 2 * sizeof(AsyncBarrier))},
                                RingArgs{in, tiles, out.data()});
    };
    expect_right(launch, [&] {
      return std::all_of(out.begin(), out.end(), [&](float sum) { return sum == expected; });
    });
    ASSERT_EQ(hipFree(in), hipSuccess);
  }
}

// ---- Clusters --------------------------------------------------------------------------------

struct ClusterArgs {
  int cluster, rounds;
  float* out;
};
// Every block posts a pair to every block of its cluster, itself too, in each of several rounds;
// all add up what came. Two sets of slots, so that a fast block overwrites nothing.
__global__ void all_to_all(ClusterArgs args) {
  const int rank = gpu::cluster_rank();
  const Lds<Pair> slots = lds_at<Pair>(0);
  const Lds<AsyncBarrier> full = lds_at<AsyncBarrier>(2 * 16 * sizeof(Pair));
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) gpu::barrier_init(full + s, 1);
    gpu::barrier_init_fence();
  }
  gpu::cluster_arrive();
  gpu::cluster_wait();
  float sum = 0;
  for (int round = 0; round < args.rounds; ++round) {
    const int s = round % 2;
    if (threadIdx.x == 0) {
      gpu::barrier_arrive_expect(full + s, static_cast<unsigned>(args.cluster) * sizeof(Pair));
    }
    if (static_cast<int>(threadIdx.x) < args.cluster) {
      const int to = static_cast<int>(threadIdx.x);
      gpu::post(gpu::remote(slots + s * 16 + rank, to),
                {static_cast<float>(blockIdx.x), static_cast<float>(round)},
                gpu::remote(full + s, to));
    }
    gpu::barrier_wait(full + s, static_cast<unsigned>(round / 2) % 2);
    for (int from = 0; from < args.cluster; ++from) {
      const Pair pair = slots[s * 16 + from];
      sum += pair.a + 1000 * pair.b;
    }
    __syncthreads();  // all have read before thread 0 goes on to the round that lets peers post
  }
  args.out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  gpu::cluster_arrive();
  gpu::cluster_wait();
}

TEST(EmulatorPrimitives, Clusters) {
  for (const int cluster : {1, 2, 3, 8}) {
    constexpr int kRounds = 5;
    const int blocks = 3 * cluster, threads = kWave + 5;
    std::vector<float> out(std::size_t(blocks * threads));
    const auto launch = [&] {
      return gpu::launch_kernel(all_to_all,
                                {.blocks = blocks,
                                 .threads = threads,
                                 .lds_bytes = 2 * 16 * sizeof(Pair) + 2 * sizeof(AsyncBarrier),
                                 .cluster = cluster},
                                ClusterArgs{cluster, kRounds, out.data()});
    };
    expect_right(launch, [&] {
      for (int i = 0; i < blocks * threads; ++i) {
        const int first = i / threads / cluster * cluster;
        int expected = 0;
        for (int b = first; b < first + cluster; ++b) {
          for (int round = 0; round < kRounds; ++round) expected += b + 1000 * round;
        }
        if (out[std::size_t(i)] != float(expected)) return false;
      }
      return true;
    });
  }
}

// ---- Flags between workgroups ----------------------------------------------------------------

struct ChainArgs {
  std::uint64_t* flags;
  std::int64_t* sums;
};
// Each block waits for the one before it.
__global__ void chain(ChainArgs args) {
  const unsigned b = blockIdx.x;
  if (threadIdx.x == 0) {
    std::int64_t sum = b;
    if (b > 0) {
      while (gpu::agent_load(args.flags + b - 1) == 0) {
      }
      sum += args.sums[b - 1];
    }
    args.sums[b] = sum;
    gpu::agent_store(args.flags + b, 1);
  }
  __syncthreads();
}

TEST(EmulatorPrimitives, FlagsBetweenWorkgroupsOfACooperativeLaunch) {
  constexpr int kBlocks = 20;
  std::vector<std::uint64_t> flags(kBlocks);
  std::vector<std::int64_t> sums(kBlocks);
  const auto launch = [&] {
    std::fill(flags.begin(), flags.end(), 0);
    return gpu::launch_kernel(
        chain, {.blocks = kBlocks, .threads = 2 * kWave, .lds_bytes = 0, .cooperative = true},
        ChainArgs{flags.data(), sums.data()});
  };
  expect_right(launch, [&] { return sums.back() == kBlocks * (kBlocks - 1) / 2; });
}

}  // namespace
}  // namespace hipnorm::testing
