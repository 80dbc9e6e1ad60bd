// A user's file beside the shipped table of its architecture: which row is taken. The user's file
// is made from the shipped one, whatever rows that has, and is read once: each test is a process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/embedded_configs.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/select.h"
#include "csrc/dispatch/table.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

const Device& h200() { return known_device("H200"); }

const Table& shipped() {
  static const Table table = [] {
    for (const EmbeddedFile& file : embedded_configs()) {
      if (file.name == "configs/sm_90.csv") return Table(file.text, std::string(file.name));
    }
    throw std::runtime_error("no table of sm_90 is shipped");
  }();
  return table;
}

Problem problem_of(const TableKey& key) {
  return test::contiguous(key.op, key.x, key.rows, key.cols);
}

// A forward of the shipped table, of many rows, where another config than the shipped one is slow.
const TableRow& some_row() {
  const auto rows = shipped().rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [](const TableRow& each) {
    return each.key.op == Op::forward && each.key.x == DType::bf16 && each.key.rows >= 1024 &&
           each.key.cols >= 4096;
  });
  if (row == rows.end()) throw std::runtime_error("no such row");
  return *row;
}

// One that the tables' rules find slow, and one that they do not.
Config slow(const Problem& problem) {
  const auto seconds = [&](const Config& c) { return predict(c, problem, h200()).seconds; };
  const std::vector<Config> all = candidates(problem, h200());
  return *std::max_element(all.begin(), all.end(), [&](const Config& a, const Config& b) {
    return seconds(a) < seconds(b);
  });
}
Config good(const Problem& problem, const Config& but) {
  for (const Config& config : candidates(problem, h200())) {
    if (config != but && config != default_config(problem, h200())) return config;
  }
  throw std::runtime_error("no other config");
}
bool is_slow(const Config& config, const Problem& problem) {
  return predict(config, problem, h200()).seconds >
         1.4 * predict(default_config(problem, h200()), problem, h200()).seconds;
}

// Makes a file of the given rows the user's.
void use(const std::vector<std::pair<TableKey, Config>>& rows, std::string_view arch = "sm_90") {
  const std::string path = ::testing::TempDir() + "hipnorm_user_" + std::to_string(getpid());
  std::ofstream file(path);
  file << table_header(arch) << kTableColumns << '\n';
  for (const auto& [key, config] : rows) {
    file << to_string(TableRow{.key = key,
                               .config = config,
                               .time_us = 1,
                               .default_us = 1,
                               .compute_units = 132,
                               .sources = "-"})
         << '\n';
  }
  file.close();
  setenv("HIPNORM_CONFIG_FILE", path.c_str(), 1);
  static_cast<void>(tables());  // reads it
  unlink(path.c_str());
}

bool took(const Problem& problem, const Config& config, Source source) {
  const Selection selection = select(problem, h200());
  if (selection.config == config && selection.source == source) return true;
  std::fprintf(stderr, "%s: %s, but expected %s  source=%s\n", to_string(problem).c_str(),
               describe(selection).c_str(), to_string(config).c_str(),
               std::string(to_string(source)).c_str());
  return false;
}

class Override : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    near_.cols = row_.key.cols + 8;  // as well aligned
  }
  // Runs in a process of its own, and must end with exit code 0.
  template <typename F>
  static void in_a_process(F f) {
    EXPECT_EXIT(std::exit(f() ? 0 : 1), ::testing::ExitedWithCode(0), "");
  }

  const TableRow& row_ = some_row();
  const Problem here_ = problem_of(row_.key);
  TableKey near_ = row_.key;
};

TEST_F(Override, TheUsersRowOfAShapeComesBeforeTheShippedOne) {
  const Config own = slow(here_);  // measured: whatever the cost model thinks of it
  ASSERT_NE(own, row_.config);
  in_a_process([&] {
    use({{row_.key, own}});
    bool right = took(here_, own, Source::table);
    const ForcedConfigGuard guard("forward=gpu_forward_stream:threads=256");
    return right && select(here_, h200()).source == Source::forced;
  });
}

TEST_F(Override, TheShippedRowOfAShapeComesBeforeTheUsersOfANearOne) {
  const Problem there = problem_of(near_);
  const Config own = good(there, row_.config);
  in_a_process([&] {
    use({{near_, own}});
    return took(there, own, Source::table) && took(here_, row_.config, Source::table);
  });
}

TEST_F(Override, AUsersRowThatCannotRunLeavesTheShippedOne) {
  const Config impossible{
      .variant = Variant::cpu_forward_row, .rows_per_block = 1, .vec_bytes = 16, .parts = 1};
  in_a_process([&] {
    use({{row_.key, impossible}, {near_, impossible}});
    return took(here_, row_.config, Source::table);
  });
}

TEST_F(Override, OfTwoNearRowsTheUsersIsTakenUnlessItIsSlow) {
  const Problem there = problem_of(near_);
  ASSERT_EQ(shipped().exact(there, h200()), nullptr);
  const TableRow* nearest = shipped().near(there, h200());
  ASSERT_NE(nearest, nullptr);
  ASSERT_FALSE(is_slow(nearest->config, there));
  // Farther away than the shipped one, and yet it comes first.
  TableKey user = near_;
  user.cols = row_.key.cols + row_.key.cols / 2;
  const Config own = good(there, nearest->config);
  ASSERT_FALSE(is_slow(own, there));
  in_a_process([&] {
    use({{user, own}});
    return took(there, own, Source::near);
  });
  ASSERT_TRUE(is_slow(slow(there), there));
  in_a_process([&] {
    use({{user, slow(there)}});
    return took(there, nearest->config, Source::near);
  });
}

TEST_F(Override, AnotherArchitecturesFileIsNotLookedInto) {
  in_a_process([&] {
    use({{row_.key, slow(here_)}, {near_, slow(here_)}}, "sm_80");
    return took(here_, row_.config, Source::table);
  });
}

}  // namespace
}  // namespace hipnorm
