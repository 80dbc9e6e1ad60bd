// Does the workbench flag what is wrong? The real kernels, each time with one bug added. The checks
// are the GPU's, too (cell_workbench.cpp); here they look into this machine's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "bench/tune/allowed.h"
#include "bench/tune/cell.h"
#include "bench/tune/cell_workbench.h"
#include "bench/tune/cpu_platform.h"
#include "bench/tune/inputs.h"
#include "bench/tune/search_space.h"
#include "tests/reference/number_format.h"

namespace hipnorm::tune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kRows = 9, kCols = 77;

// What happens after each launch; `runs` counts them.
std::function<void(const ForwardArgs&, const Launch&)> after_forward;
std::function<void(const BackwardArgs&, const Launch&)> after_backward;
int runs = 0;

Error forward(const ForwardArgs& args, const Launch& launch) {
  ++runs;
  const Error error = launch_forward(args, launch);
  if (!error && after_forward) after_forward(args, launch);
  return error;
}
Error backward(const BackwardArgs& args, const Launch& launch) {
  ++runs;
  const Error error = launch_backward(args, launch);
  if (!error && after_backward) after_backward(args, launch);
  return error;
}

const Device& device() { return *cpu_machine().device; }

TableKey cell(Op op, DType type = DType::f32, std::int64_t rows = kRows,
              std::int64_t cols = kCols) {
  return {.op = op, .x = type, .weight = type, .bias = true, .cols = cols, .rows = rows};
}
std::unique_ptr<Workbench> bench(const TableKey& key) {
  return make_cell_workbench(cpu_platform(), device(), key, {forward, backward});
}

class Flagged : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { runs = 0; }
  void TearDown() override {
    after_forward = nullptr;
    after_backward = nullptr;
  }

  // What the workbench says of the first config: "right", or why not.
  static std::string verdict(Op op) {
    const TableKey key = cell(op, GetParam());
    const Finding finding = bench(key)->check(search_space(problem_of(key), device(), 1).front());
    EXPECT_EQ(finding.right, finding.reason.empty());
    return finding.right ? "right" : finding.reason;
  }
};
INSTANTIATE_TEST_SUITE_P(Workbench, Flagged,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// An output of a launch, to do something bad to.
struct Victim {
  const char* name;
  Op op;
  std::int64_t rows, cols;
  bool statistic;  // of the accumulate type
  void* ForwardArgs::* forward = nullptr;
  void* BackwardArgs::* backward = nullptr;

  void seed(const std::function<void(char* data, DType type)>& bug) const {
    const auto type_of = [statistic = statistic](const Launch& launch) {
      return statistic ? accumulate_type(launch.problem.x) : launch.problem.x;
    };
    if (op == Op::forward) {
      after_forward = [=, member = forward](const ForwardArgs& args, const Launch& launch) {
        bug(static_cast<char*>(args.*member), type_of(launch));
      };
    } else {
      after_backward = [=, member = backward](const BackwardArgs& args, const Launch& launch) {
        bug(static_cast<char*>(args.*member), type_of(launch));
      };
    }
  }
};
const Victim kVictims[] = {
    {"y", Op::forward, kRows, kCols, false, &ForwardArgs::y},
    {"mean", Op::forward, kRows, 1, true, &ForwardArgs::mean},
    {"rstd", Op::forward, kRows, 1, true, &ForwardArgs::rstd},
    {"dX", Op::backward, kRows, kCols, false, nullptr, &BackwardArgs::dx},
    {"dW", Op::backward, 1, kCols, false, nullptr, &BackwardArgs::dweight},
    {"dB", Op::backward, 1, kCols, false, nullptr, &BackwardArgs::dbias},
};

TEST_P(Flagged, NothingOfTheRealKernels) {
  for (const Op op : kOps) {
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{9, 77}, {1, 1}, {3, 5}, {64, 8}, {5, 1000}}) {
      const TableKey key = cell(op, GetParam(), rows, cols);
      const auto workbench = bench(key);
      for (const Config& config : search_space(problem_of(key), device(), 20)) {
        const Finding finding = workbench->check(config);
        EXPECT_TRUE(finding.right)
            << to_string(key) << ' ' << to_string(config) << ": " << finding.reason;
        EXPECT_LE(finding.worst, 1);
        EXPECT_GE(finding.worst, rows * cols > 100 ? 1e-3 : 0);
      }
    }
  }
}

TEST_P(Flagged, OneWrongElement) {
  for (const Victim& v : kVictims) {
    // The middle, and the row whose mean is 1000.
    for (const std::int64_t row : {v.rows / 2 + (v.rows > 1), std::int64_t{v.rows > 1}}) {
      const std::int64_t col = v.cols / 3;
      v.seed([&](char* data, DType type) {
        const std::int64_t at = row * v.cols + col;
        reference::store(type, data, at, reference::load(type, data, at) * 1.25 + 0.25);
      });
      const std::string reason = verdict(v.op);
      EXPECT_THAT(reason, StartsWith(std::string(v.name) + ": "));
      EXPECT_THAT(reason, HasSubstr('(' + std::to_string(row) + ", " + std::to_string(col) + ')'));
    }
  }
}

TEST_P(Flagged, AnElementThatNobodyWrites) {
  for (const Victim& v : kVictims) {
    for (const std::int64_t at : {std::int64_t{0}, v.rows * v.cols - 1}) {
      if (v.rows == 1 && at > 0) continue;  // that column of dW and dB is spoilt by an Inf
      v.seed([&](char* data, DType type) {
        std::memset(data + at * size_of(type), 0xff, static_cast<std::size_t>(size_of(type)));
      });
      EXPECT_THAT(verdict(v.op), StartsWith(std::string(v.name) + ": ")) << at;
    }
  }
}

TEST_P(Flagged, AWriteOutsideOfAnOutput) {
  for (const Victim& v : kVictims) {
    for (const std::int64_t byte : {-4096, -1, 0, 4095}) {  // from its start or its end
      v.seed([&](char* data, DType type) {
        data[byte < 0 ? byte : v.rows * v.cols * size_of(type) + byte] = 0;
      });
      EXPECT_EQ(verdict(v.op), std::string("wrote outside of ") + v.name) << byte;
    }
  }
}

TEST_P(Flagged, TwoRunsThatDiffer) {
  for (const Victim& v : kVictims) {
    runs = 0;
    v.seed([&](char* data, DType) {
      if (runs == 2) data[0] = static_cast<char>(data[0] ^ 1);  // the last bit: well allowed
    });
    EXPECT_EQ(verdict(v.op), std::string(v.name) + " differs between two runs in 1 bytes");
  }
}

// Row 3 has a NaN: it is all NaN, and no other row is.
TEST_P(Flagged, ANaNThatReachesAnotherRow) {
  after_forward = [](const ForwardArgs& args, const Launch& launch) {
    reference::store(launch.problem.x, args.y, 5 * kCols + 76, std::nan(""));
  };
  EXPECT_THAT(verdict(Op::forward), AllOf(StartsWith("y: "), HasSubstr("(5, 76)")));
  after_backward = [](const BackwardArgs& args, const Launch& launch) {
    reference::store(launch.problem.x, args.dx, 2 * kCols, std::nan(""));
  };
  EXPECT_THAT(verdict(Op::backward), AllOf(StartsWith("dX: "), HasSubstr("(2, 0)")));
  // … or, in dW, a column that has none.
  after_backward = [](const BackwardArgs& args, const Launch& launch) {
    reference::store(launch.problem.weight, args.dweight, 5, std::nan(""));
  };
  EXPECT_THAT(verdict(Op::backward), StartsWith("dW: "));
}

TEST_P(Flagged, ANumberWhereANaNBelongs) {
  after_forward = [](const ForwardArgs& args, const Launch& launch) {
    reference::store(launch.problem.x, args.y, 3 * kCols + 5, 0.0);
  };
  EXPECT_THAT(verdict(Op::forward), AllOf(StartsWith("y: "), HasSubstr("(3, 5)")));
  for (const std::int64_t row : {3, 4}) {  // NaN and Inf in dy
    after_backward = [=](const BackwardArgs& args, const Launch& launch) {
      reference::store(launch.problem.x, args.dx, row * kCols + 5, 0.0);
    };
    EXPECT_THAT(verdict(Op::backward),
                AllOf(StartsWith("dX: "), HasSubstr('(' + std::to_string(row) + ", 5)")));
  }
  after_backward = [](const BackwardArgs& args, const Launch& launch) {
    reference::store(launch.problem.weight, args.dbias, kCols / 2, 0.0);
  };
  EXPECT_THAT(verdict(Op::backward), StartsWith("dB: "));
}

// Parts of sums in the workspace: 3 × kCols of dW, then of dB.
constexpr Config kThreeParts{
    .variant = Variant::cpu_backward_row, .rows_per_block = 1, .vec_bytes = 16, .parts = 3};

TEST(Workspace, WhatAnEarlierRunLeftThereIsGone) {
  after_backward = [](const BackwardArgs& args, const Launch& launch) {
    // Adds a number that nobody wrote, and leaves one that makes the next run look right.
    auto* stale = static_cast<float*>(args.workspace) + launch.plan.workspace_bytes / 4 - 1;
    if (runs > 2) static_cast<float*>(args.dweight)[0] += *stale;
    *stale = 0;
  };
  runs = 0;
  const auto workbench = bench(cell(Op::backward));
  EXPECT_EQ(workbench->check(kThreeParts).reason, "");
  EXPECT_THAT(workbench->check(kThreeParts).reason, StartsWith("dW: 1 elements wrong"));
  after_backward = nullptr;
}

TEST(Workspace, AWriteBehindItsEndIsFlagged) {
  const auto workbench = bench(cell(Op::backward));
  Config more = kThreeParts;
  more.parts = 9;  // the same workspace, larger than the next config needs
  EXPECT_EQ(workbench->check(more).reason, "");
  for (const std::int64_t byte : {-1, 0, 100}) {
    after_backward = [=](const BackwardArgs& args, const Launch& launch) {
      static_cast<char*>(args.workspace)[byte < 0 ? byte : launch.plan.workspace_bytes + byte] = 1;
    };
    EXPECT_EQ(workbench->check(kThreeParts).reason, "wrote outside of the workspace") << byte;
  }
  after_backward = nullptr;
}

TEST(Launches, ThatFailAreThrown) {
  const auto workbench = make_cell_workbench(
      cpu_platform(), device(), cell(Op::forward),
      {.forward = [](const ForwardArgs&, const Launch&) -> Error { return "no such kernel"; }});
  try {
    workbench->check(search_space(problem_of(cell(Op::forward)), device(), 1).front());
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no such kernel");
  }
}

// Timed runs see no NaN; checked ones after them do.
TEST(Times, AreTakenInTurnsOnOrdinaryRows) {
  bool spoilt = false;
  const auto has_nan = [](const void* data) {
    const auto* values = static_cast<const float*>(data);
    return std::any_of(values, values + kRows * kCols,
                       [](float value) { return !std::isfinite(value); });
  };
  std::vector<int> turns;
  after_forward = [&](const ForwardArgs& args, const Launch& launch) {
    spoilt = has_nan(args.x);
    turns.push_back(launch.config.parts);
  };
  after_backward = [&](const BackwardArgs& args, const Launch& launch) {
    spoilt = has_nan(args.dy);
    turns.push_back(launch.config.parts);
  };
  for (const Op op : {Op::forward, Op::backward}) {
    const auto workbench = bench(cell(op));
    const Config one{
        .variant = op == Op::forward ? Variant::cpu_forward_row : Variant::cpu_backward_row,
        .rows_per_block = 1,
        .vec_bytes = 16,
        .parts = 1};
    Config two = one, three = one;
    two.parts = 2;
    three.parts = 3;
    EXPECT_EQ(workbench->check(one).reason, "");
    EXPECT_TRUE(spoilt);
    turns.clear();
    const Config configs[] = {one, two, three};
    const auto samples = workbench->time(configs, 4);
    EXPECT_FALSE(spoilt);
    EXPECT_THAT(turns, ::testing::ElementsAre(1, 2, 3, 2, 3, 1, 3, 1, 2, 1, 2, 3));
    ASSERT_EQ(samples.size(), 3u);
    for (const auto& list : samples) {
      EXPECT_THAT(list, AllOf(::testing::SizeIs(4), Each(::testing::Gt(0))));
    }
    EXPECT_EQ(workbench->check(one).reason, "");
    EXPECT_TRUE(spoilt);
    turns.clear();
    EXPECT_THAT(workbench->time(configs, 0), Each(::testing::IsEmpty()));
    EXPECT_TRUE(turns.empty());
  }
  after_forward = nullptr;
  after_backward = nullptr;
}

TEST(Allowed, IsBetweenLowAndHigh) {
  const float nan = std::nanf(""), infinity = INFINITY;
  EXPECT_EQ(misfit(1.5f, 1, 2, false), 0);
  EXPECT_EQ(misfit(1, 1, 2, false), 1);
  EXPECT_EQ(misfit(2, 1, 2, false), 1);
  EXPECT_EQ(misfit(1.75f, 1, 2, false), 0.5f);
  EXPECT_EQ(misfit(3, 3, 3, false), 0);
  for (const float wrong : {0.999f, 2.001f, nan, infinity, -infinity}) {
    EXPECT_EQ(misfit(wrong, 1, 2, false), kWrong) << wrong;
  }
  // The truth is NaN.
  EXPECT_EQ(misfit(nan, nan, nan, true), 0);
  EXPECT_EQ(misfit(infinity, nan, nan, true), kWrong);
  EXPECT_EQ(misfit(infinity, nan, nan, false), 0);
  EXPECT_EQ(misfit(0, nan, nan, false), kWrong);
  // Infinite.
  EXPECT_EQ(misfit(-infinity, infinity, -infinity, false), 0);
  EXPECT_EQ(misfit(nan, infinity, -infinity, false), 0);
  EXPECT_EQ(misfit(1e30f, infinity, -infinity, false), kWrong);
  // Anything but NaN; from a number on.
  EXPECT_EQ(misfit(5, -infinity, infinity, false), 0);
  EXPECT_EQ(misfit(nan, -infinity, infinity, false), kWrong);
  EXPECT_EQ(misfit(infinity, 1e38f, infinity, false), 0);
  EXPECT_LE(misfit(3e38f, -3e38f, 3e38f, false), 1);
}

}  // namespace
}  // namespace hipnorm::tune
