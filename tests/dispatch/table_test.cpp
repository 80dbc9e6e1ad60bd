// Tables of measured configs: reading files good and bad, and the look-up rule of
// configs/README.md.
#include "csrc/dispatch/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "csrc/dispatch/embedded_configs.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/select.h"
#include "csrc/dispatch/validate.h"
#include "tests/dispatch/problems.h"

namespace hipnorm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kHeader = table_header("cpu-test") + std::string(kTableColumns) + '\n';

std::string row(std::string_view op, std::int64_t cols, std::int64_t rows, int parts = 1,
                std::string_view types = "f32,f32,1") {
  const std::string_view variant = op == "forward" ? "cpu_forward_row" : "cpu_backward_row";
  return std::string(op) + ',' + std::string(types) + ',' + std::to_string(cols) + ',' +
         std::to_string(rows) + ",\"" + std::string(variant) +
         ":rows_per_block=1,vec_bytes=16,parts=" + std::to_string(parts) +
         ",stream=0\",1.5,2,2,abc\n";
}
Table table(const std::string& rows) { return Table(kHeader + rows, "t.csv"); }

std::string refused(const std::string& text) {
  try {
    Table(text, "t.csv");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "not refused";
}

TEST(TableFile, RowsAreReadAndPrintedAlike) {
  const std::string line = row("backward", 256, 512, 3);
  const Table t = table("\n# between\n" + line);
  ASSERT_THAT(t.complaints(), IsEmpty());
  ASSERT_EQ(t.rows().size(), 1u);
  const TableRow& r = t.rows()[0];
  EXPECT_EQ(r.key, (TableKey{Op::backward, DType::f32, DType::f32, true, 256, 512}));
  EXPECT_EQ(to_string(r.config), "cpu_backward_row:rows_per_block=1,vec_bytes=16,parts=3,stream=0");
  EXPECT_EQ(r.time_us, 1.5);
  EXPECT_EQ(r.default_us, 2);
  EXPECT_EQ(r.compute_units, 2);
  EXPECT_EQ(r.sources, "abc");
  EXPECT_EQ(to_string(r) + '\n', line);
  EXPECT_EQ(t.arch(), "cpu-test");
}

TEST(TableFile, ProvenanceAndCarriageReturns) {
  std::string text = table_header("cpu-test") + "# device: here\n#\n# commit: abc\n" +
                     std::string(kTableColumns) + "\n" + row("forward", 1, 1);
  std::string crlf;
  for (char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (const std::string& t : {text, crlf}) {
    const Table parsed(t, "t.csv");
    EXPECT_THAT(parsed.provenance(), ElementsAre("device: here", "commit: abc"));
    EXPECT_EQ(parsed.rows().size(), 1u);
    EXPECT_EQ(parsed.arch(), "cpu-test");
    EXPECT_THAT(parsed.complaints(), IsEmpty());
  }
}

TEST(TableFile, AWrongHeaderRefusesTheFile) {
  EXPECT_THAT(refused(""), HasSubstr("t.csv is no hipnorm table"));
  EXPECT_THAT(refused("op,x\n"), HasSubstr("but got 'op,x'"));
  EXPECT_THAT(refused("# hipnorm configs 2 arch=sm_90\n"), HasSubstr("no hipnorm table"));
  EXPECT_THAT(refused("# hipnorm configs 1 arch=\n"), HasSubstr("no hipnorm table"));
  EXPECT_THAT(refused(table_header("sm_90")), HasSubstr("expected the columns"));
  EXPECT_THAT(refused(table_header("sm_90") + "op,x,weight\n"), HasSubstr("t.csv:2:"));
  EXPECT_THAT(refused(std::string(1 << 20, '\0')), HasSubstr("no hipnorm table"));
}

TEST(TableFile, AWrongRowIsLeftOutWithItsReason) {
  const std::string good = row("forward", 64, 64);
  const auto complaint = [&](const std::string& bad) {
    const Table t = table(good + bad + row("forward", 128, 64));
    EXPECT_EQ(t.rows().size(), 2u) << bad;
    return t.complaints().size() == 1 ? t.complaints()[0] : "not one complaint";
  };
  const std::string config = "\"cpu_forward_row:rows_per_block=1,vec_bytes=16,parts=1,stream=0\"";
  const std::string tail = ",1,1,2,abc\n";
  EXPECT_THAT(complaint("forward\n"), HasSubstr("t.csv:4: expected the 11 fields"));
  EXPECT_THAT(complaint("sideways,f32,f32,1,8,8," + config + tail), HasSubstr("unknown op"));
  EXPECT_THAT(complaint("forward,f8,f32,1,8,8," + config + tail), HasSubstr("unknown dtype 'f8'"));
  EXPECT_THAT(complaint("forward,f32,f32,2,8,8," + config + tail), HasSubstr("bias must be"));
  EXPECT_THAT(complaint("forward,f32,f32,1,0,8," + config + tail), HasSubstr("cols must be"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,-1," + config + tail), HasSubstr("rows must be"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8x," + config + tail), HasSubstr("'8x'"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,99999999999999999999," + config + tail),
              HasSubstr("rows must be"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8,\"nothing:a=1\"" + tail), HasSubstr("nothing"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8,\"cpu_forward_row:parts=1\"" + tail),
              HasSubstr("lacks rows_per_block"));
  EXPECT_THAT(complaint("backward,f32,f32,1,8,8," + config + tail),
              HasSubstr("is no backward variant"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8,\"cpu_forward_row" + tail), HasSubstr("quote"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8," + config + ",nan,1,2,abc\n"),
              HasSubstr("time_us"));
  EXPECT_THAT(complaint("forward,f32,f32,1,8,8," + config + ",1,1,0,abc\n"),
              HasSubstr("compute_units"));
  EXPECT_THAT(complaint(good), HasSubstr("t.csv:4: the shape of line 3 again"));
}

TEST(TableFile, ACutOffFileLosesItsLastRowOnly) {
  const std::string whole = row("forward", 64, 64) + row("forward", 128, 128);
  for (std::size_t cut = 1; cut < row("forward", 128, 128).size(); ++cut) {
    const Table t = table(whole.substr(0, whole.size() - cut));
    ASSERT_EQ(t.rows().size(), 1u) << cut;
    ASSERT_EQ(t.complaints().size(), 1u) << cut;
  }
}

TEST(TableFile, AHundredThousandRows) {
  std::string rows;
  for (int i = 0; i < 100'000; ++i) rows += row("forward", 1 + i / 100, 1 + i % 100 * 7);
  const Table t = table(rows);
  EXPECT_EQ(t.rows().size(), 100'000u);
  EXPECT_THAT(t.complaints(), IsEmpty());
  EXPECT_NE(t.exact(test::problem(Op::forward, DType::f32, 1 + 99 * 7, 1000), test::cpu(2, 16)),
            nullptr);
}

// ---- Look-up ----------------------------------------------------------------------------------
const Device& device() {
  static const Device device = test::cpu(8, 64);
  return device;
}
// parts of the config found, which tells the rows of the table apart; 0: none.
int found(const Table& t, std::int64_t rows, std::int64_t cols, bool exact = false,
          Op op = Op::forward) {
  const Problem p = test::problem(op, DType::f32, rows, cols);
  const TableRow* row = exact ? t.exact(p, device()) : t.near(p, device());
  return row == nullptr ? 0 : row->config.parts;
}

TEST(TableLookUp, ExactIsThisVeryShapeAndNearIsNot) {
  const Table t = table(row("forward", 1000, 1000, 1) + row("forward", 1001, 1000, 2));
  EXPECT_EQ(found(t, 1000, 1000, true), 1);
  EXPECT_EQ(found(t, 1000, 1001, true), 2);
  EXPECT_EQ(found(t, 1000, 1002, true), 0);
  EXPECT_EQ(found(t, 1001, 1000, true), 0);
  EXPECT_EQ(found(t, 1000, 1000), 2);
  EXPECT_EQ(found(t, 1000, 1001), 1);
}

TEST(TableLookUp, NearWithinTwiceTheColsAndFourTimesTheRows) {
  const Table t = table(row("forward", 1000, 1000, 1) + row("forward", 1000, 16000, 2));
  EXPECT_EQ(found(t, 1000, 2000), 1);
  EXPECT_EQ(found(t, 1000, 2001), 0);
  EXPECT_EQ(found(t, 1000, 500), 1);
  EXPECT_EQ(found(t, 1000, 499), 0);
  EXPECT_EQ(found(t, 250, 1000), 1);
  EXPECT_EQ(found(t, 249, 1000), 0);
  EXPECT_EQ(found(t, 3999, 1000), 1);  // √(1000 · 16000) = 4000 is as far from both
  EXPECT_EQ(found(t, 4001, 1000), 2);
  EXPECT_EQ(found(t, std::int64_t{1} << 40, 1000), 2);  // beyond the most measured
}

TEST(TableLookUp, ColsWeighTwiceAsMuchAsRows) {
  const Table t = table(row("forward", 1400, 1000, 1) + row("forward", 1000, 1900, 2));
  EXPECT_EQ(found(t, 1000, 1000), 2);  // log₂ 1.9 / 2 = .46 against log₂ 1.4 = .49
}

TEST(TableLookUp, OtherKindsAreNeverNear) {
  const Table t = table(row("forward", 1000, 1000, 1, "bf16,bf16,1") +
                        row("forward", 1000, 1000, 2, "f32,none,1") +
                        row("forward", 1000, 1000, 3, "f32,f32,0") + row("backward", 1000, 1000));
  EXPECT_EQ(found(t, 1000, 1000), 0);
}

TEST(TableLookUp, RefusedRowsArePassedOver) {
  // parts=500 needs 500 rows.
  const Table t = table(row("forward", 1000, 400, 500) + row("forward", 1000, 700, 4));
  EXPECT_EQ(found(t, 400, 1000), 4);
  EXPECT_EQ(found(t, 400, 1000, true), 0);
  EXPECT_EQ(found(t, 3, 1000), 0);
}

TEST(TableLookUp, OtherMasksUseTheFullMasksRow) {
  const Table t = table(row("backward", 1000, 1000, 5));
  Problem p = test::problem(Op::backward, DType::f32, 1000, 1000);
  p.grads = {.dx = true};
  const TableRow* match = t.exact(p, device());
  ASSERT_NE(match, nullptr);
  EXPECT_EQ(match->config.parts, 5);
}

TEST(TableLookUp, FindsWithinMicroseconds) {
  std::string rows;
  for (int cols = 256; cols < 100'000; cols = cols * 9 / 8) {
    for (int m = 1; m < 300'000; m *= 4) rows += row("forward", cols, m);
  }
  const Table t = table(rows);
  // The best of twenty: what else runs on the machine only adds.
  constexpr int kCalls = 100;
  double best = 1e9;
  for (int batch = 0; batch < 20; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    int sum = 0;
    for (int i = 0; i < kCalls; ++i) sum += found(t, 1000 + i, 3000 + 100 * batch + i);
    const auto end = std::chrono::steady_clock::now();
    EXPECT_EQ(sum, kCalls);
    best = std::min(best, std::chrono::duration<double, std::micro>(end - start).count() / kCalls);
  }
  EXPECT_LT(best, 100) << "goal: 20 µs on an idle machine";
}

TEST(TableLookUp, SafeFromManyThreads) {
  const Table t = table(row("forward", 1000, 1000, 1) + row("forward", 2000, 1000, 2));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) ASSERT_EQ(found(t, 1000, 1001 + k % 199), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The device that a row was measured on, by its data sheet.
const Device* measured_on(const std::string& arch, int compute_units) {
  for (const KnownDevice& known : known_devices()) {
    if (known.device.arch == arch && known.device.compute_units == compute_units) {
      return &known.device;
    }
  }
  return nullptr;
}

// Every file in configs/ is whole, names its own arch, and every row can run the shape it is for.
TEST(EmbeddedConfigs, AreGood) {
  for (const EmbeddedFile& file : embedded_configs()) {
    const Table t(file.text, std::string(file.name));
    EXPECT_THAT(t.complaints(), IsEmpty());
    EXPECT_EQ(file.name, "configs/" + t.arch() + ".csv");
    EXPECT_FALSE(t.rows().empty()) << file.name;
    for (const TableRow& each : t.rows()) {
      SCOPED_TRACE(to_string(each));
      const Device* measured = measured_on(t.arch(), each.compute_units);
      ASSERT_NE(measured, nullptr) << "no data sheet";
      Problem p = test::contiguous(each.key.op, each.key.x, each.key.rows, each.key.cols);
      p.has_weight = each.key.weight != DType::none;
      p.has_bias = each.key.bias;
      if (p.has_weight) p.weight = each.key.weight;
      if (p.is_backward()) p.grads = {true, p.has_weight, p.has_bias};
      EXPECT_EQ(validate(each.config, p, *measured), std::nullopt);
      EXPECT_EQ(t.exact(p, *measured), &each);
    }
  }
}

// ---- HIPNORM_CONFIG_FILE, which is read once: CTest starts these with the variable set ----------
class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("HIPNORM_CONFIG_FILE") == nullptr) GTEST_SKIP() << "has a CTest entry each";
  }
};

// tests/dispatch/user_configs.csv, arch cpu-test.
TEST_F(ConfigFile, ComesBeforeTheDefaultAndAfterAForcedConfig) {
  const Device user = test::cpu(8, 64);
  Problem p = test::problem(Op::forward, DType::f32, 4000, 3000);
  EXPECT_EQ(describe(select(p, user)),
            "cpu_forward_row:rows_per_block=1,vec_bytes=32,parts=7,stream=1  source=table");
  p.cols = 3001;
  EXPECT_EQ(select(p, user).source, Source::near);
  p.cols = 30000;
  EXPECT_EQ(select(p, user).source, Source::chosen_default);
  // One part is all that 8 rows need. A million rows are near, and far too many for it.
  p.cols = 501;
  p.rows = 8;
  EXPECT_EQ(select(p, user).source, Source::near);
  p.rows = 1000000;
  EXPECT_EQ(select(p, user).source, Source::chosen_default);
  p.rows = 4000;
  Device other = user;
  other.arch = "cpu-other";
  p.cols = 3000;
  EXPECT_EQ(select(p, other).source, Source::chosen_default);
  EXPECT_EQ(tables().front()->file(), std::getenv("HIPNORM_CONFIG_FILE"));
  const ForcedConfigGuard guard("forward=cpu_forward_row:parts=2");
  EXPECT_EQ(select(p, user).source, Source::forced);
}

TEST_F(ConfigFile, ThatCannotBeUsedMakesEveryCallThrow) {
  const Problem p = test::problem(Op::forward, DType::f32, 4000, 3000);
  for (int i = 0; i < 2; ++i) {
    try {
      select(p, device());
      FAIL() << "no exception";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("HIPNORM_CONFIG_FILE"));
      EXPECT_THAT(error.what(), HasSubstr(std::getenv("HIPNORM_CONFIG_FILE")));
    }
  }
}

}  // namespace
}  // namespace hipnorm
