// Launches: coordinates, limits, a .hip file as C++, workgroups that wait for each other, global
// memory, f16.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "tests/emulator/block_sum.h"
#include "tests/emulator/under_schedules.h"

namespace hipnorm::testing {
namespace {

TEST(EmulatorLaunch, HipFile) {
  std::vector<std::int64_t> values(5000);
  std::iota(values.begin(), values.end(), 1);
  for (const emulator::Schedule& schedule : emulator::schedules(1)) {
    SCOPED_TRACE(to_string(schedule));
    const emulator::ScopedSchedule scoped(schedule);
    for (const int threads : {64, 256, 1024}) {
      std::int64_t sum = 0;
      ASSERT_EQ(block_sum(values.data(), 5000, &sum, threads), hipSuccess)
          << emulator::last_fault().message;
      EXPECT_EQ(sum, 5000 * 5001 / 2);
    }
  }
}

// ---- Coordinates -----------------------------------------------------------------------------

struct CoordinatesArgs {
  unsigned* out;
  std::vector<unsigned>* order;
};
__global__ void coordinates(CoordinatesArgs args) {
  if (threadIdx.x == 0) args.order->push_back(blockIdx.x);
  args.out[blockIdx.x * blockDim.x + threadIdx.x] = 10 * gridDim.x + threadIdx.x;
}

TEST(EmulatorLaunch, CoordinatesAndOrderOfBlocks) {
  constexpr int kBlocks = 12, kThreads = 70;
  std::set<std::vector<unsigned>> orders;
  std::vector<unsigned> out(kBlocks * kThreads), order;
  const auto launch = [&] {
    order.clear();
    return gpu::launch_kernel(coordinates, {.blocks = kBlocks, .threads = kThreads, .lds_bytes = 0},
                              CoordinatesArgs{out.data(), &order});
  };
  expect_right(launch, [&] {
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (int i = 0; i < kBlocks * kThreads; ++i) {
      if (out[std::size_t(i)] != unsigned(10 * kBlocks + i % kThreads)) return false;
    }
    return order.size() == kBlocks && order.back() == kBlocks - 1;
  });
  EXPECT_GT(orders.size(), 30u) << "of 40 schedules";
}

TEST(EmulatorLaunch, SameSeedSameOrder) {
  std::vector<unsigned> out(20 * 8), order, first;
  for (int i = 0; i < 2; ++i) {
    order.clear();
    const emulator::ScopedSchedule scoped({.seed = 7});
    ASSERT_EQ(gpu::launch_kernel(coordinates, {.blocks = 20, .threads = 8, .lds_bytes = 0},
                                 CoordinatesArgs{out.data(), &order}),
              hipSuccess);
    if (i == 0) first = order;
  }
  EXPECT_EQ(order, first);
}

// ---- Limits ----------------------------------------------------------------------------------

TEST(EmulatorLaunch, Limits) {
  const auto refused = [](const gpu::Grid& grid, hipError_t error, const std::string& words) {
    EXPECT_EQ(gpu::launch_kernel(coordinates, grid, CoordinatesArgs{nullptr, nullptr}), error);
    const std::string message = hipGetErrorString(error);
    EXPECT_NE(message.find("kernel coordinates: " + words), message.npos) << message;
  };
  using gpu::Grid;
  const auto invalid = hipErrorInvalidConfiguration;
  refused(Grid{.blocks = 0, .threads = 32, .lds_bytes = 0}, invalid, "0 blocks");
  refused(Grid{.blocks = std::int64_t{1} << 31, .threads = 32, .lds_bytes = 0}, invalid,
          "2147483648 blocks");
  refused(Grid{.blocks = 1, .threads = 1025, .lds_bytes = 0}, invalid, "1025 threads");
  refused(Grid{.blocks = 1, .threads = 0, .lds_bytes = 0}, invalid, "0 threads");
  refused(Grid{.blocks = 1, .threads = 32, .lds_bytes = 232449}, invalid, "232449 bytes of LDS");
  refused(Grid{.blocks = 7, .threads = 32, .lds_bytes = 0, .cluster = 2}, invalid, "7 blocks in");
  refused(Grid{.blocks = 17, .threads = 32, .lds_bytes = 0, .cluster = 17}, invalid, "clusters of");
  refused(Grid{.blocks = 100, .threads = 256, .lds_bytes = 0, .cooperative = true},
          hipErrorCooperativeLaunchTooLarge, "25600 threads resident at once");
}

// ---- Workgroups that wait for each other -----------------------------------------------------

struct FlagArgs {
  std::uint64_t* flags;
};
// Every block waits for every other one.
__global__ void meet(FlagArgs args) {
  if (threadIdx.x == 0) gpu::agent_store(args.flags + blockIdx.x, 1);
  if (threadIdx.x < gridDim.x) {
    while (gpu::agent_load(args.flags + threadIdx.x) == 0) {
    }
  }
  __syncthreads();
}
// The same by one thread, which polls all flags in turn.
__global__ void meet_in_turn(FlagArgs args) {
  if (threadIdx.x == 0) {
    gpu::agent_store(args.flags + blockIdx.x, 1);
    for (unsigned set = 0; set < gridDim.x;) {
      set = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) {
        set += static_cast<unsigned>(gpu::agent_load(args.flags + b));
      }
    }
  }
  __syncthreads();
}

TEST(EmulatorLaunch, FlagsNeedACooperativeLaunch) {
  std::vector<std::uint64_t> flags(5);
  for (const auto kernel : {meet, meet_in_turn}) {
    const auto launch = [&](bool cooperative) {
      return [&flags, kernel, cooperative] {
        std::fill(flags.begin(), flags.end(), 0);
        return gpu::launch_kernel(kernel,
                                  {.blocks = std::int64_t(flags.size()),
                                   .threads = kWave,
                                   .lds_bytes = 0,
                                   .cooperative = cooperative},
                                  FlagArgs{flags.data()});
      };
    };
    expect_right(launch(true), [] { return true; });
    expect_fault(launch(false),
                 {"deadlock: thread", "agent_load (launch_test.cpp:",
                  "without a cooperative launch no other block need be running", "__syncthreads"},
                 1);
  }
}

// ---- Global memory ---------------------------------------------------------------------------

struct ScaleArgs {
  bool mended;
  int n;
  float* values;
};
__global__ void scale(ScaleArgs args) {
  const int i = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) * 4);
  for (int k = 0; k < 4; ++k) {
    if (!args.mended || i + k < args.n) args.values[i + k] = 1;
  }
}

// What is written past a tail shows in guards. Here they belong to the array: under
// AddressSanitizer the write itself would end the test.
TEST(EmulatorLaunch, TailWrittenPastItsEnd) {
  constexpr int kN = 4 * kWave + 3;
  std::vector<float> values(6 * kWave * 4);
  for (const bool mended : {true, false}) {
    const auto launch = [&] {
      std::fill(values.begin(), values.end(), NAN);
      return gpu::launch_kernel(scale, {.blocks = 2, .threads = kWave, .lds_bytes = 0},
                                ScaleArgs{mended, kN, values.data()});
    };
    const auto right = [&] {
      return std::count(values.begin(), values.end(), 1.0f) == kN &&
             std::all_of(values.begin() + kN, values.end(), [](float v) { return v != v; });
    };
    if (mended) {
      expect_right(launch, right);
    } else {
      expect_caught(launch, right, {}, 1);
    }
  }
}

struct RowsArgs {
  bool mended;
  int rows;
  float* partial;
  float* sum;
};
// A row of the workspace for each block; without rows a block forgets its own.
__global__ void partial_sums(RowsArgs args) {
  const int b = static_cast<int>(blockIdx.x);
  if (b < args.rows) {
    args.partial[b] = 1;
  } else if (args.mended) {
    args.partial[b] = 0;
  }
}
__global__ void total(RowsArgs args) {
  float sum = 0;
  for (int b = 0; b < 4; ++b) sum += args.partial[b];
  *args.sum = sum;
}

TEST(EmulatorLaunch, RowOfAWorkspaceThatNobodyWrote) {
  for (const bool mended : {true, false}) {
    float* partial = nullptr;
    ASSERT_EQ(hipMalloc(&partial, 4 * sizeof(float)), hipSuccess);
    float sum = 0;
    const RowsArgs args{mended, 3, partial, &sum};
    ASSERT_EQ(gpu::launch_kernel(partial_sums, {.blocks = 4, .threads = 1, .lds_bytes = 0}, args),
              hipSuccess);
    ASSERT_EQ(gpu::launch_kernel(total, {.blocks = 1, .threads = 1, .lds_bytes = 0}, args),
              hipSuccess);
    EXPECT_EQ(sum == 3, mended) << sum;
    ASSERT_EQ(hipFree(partial), hipSuccess);
  }
}

// ---- f16 -------------------------------------------------------------------------------------

TEST(EmulatorHalf, AllValuesAndTies) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = gpu::half_bits_to_float(half);
    const std::uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      ASSERT_TRUE(fraction == 0 ? value == sign * INFINITY : value != value) << bits;
      ASSERT_EQ(gpu::float_to_half_bits(value), fraction == 0 ? bits : bits | 0x200);
      continue;
    }
    const float expected =
        sign * (exponent == 0 ? std::ldexp(float(fraction), -24)
                              : std::ldexp(1024 + float(fraction), int(exponent) - 25));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected)) << bits;
    ASSERT_EQ(gpu::float_to_half_bits(value), half);
    // Halfway to the next number of greater magnitude, and just beside.
    const float next = bits % 0x8000 == 0x7bff ? sign * 65536 : gpu::half_bits_to_float(half + 1);
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(gpu::float_to_half_bits(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(gpu::float_to_half_bits(std::nextafter(middle, value)), bits);
    ASSERT_EQ(gpu::float_to_half_bits(std::nextafter(middle, next)), bits + 1);
  }
}

}  // namespace
}  // namespace hipnorm::testing
