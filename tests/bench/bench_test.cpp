// The parts of hipnorm-bench that the command line cannot show: the judge on damaged tensors, the
// numbers in a row, the output file's life.
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "bench/check.h"
#include "bench/inputs.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/shapes.h"
#include "bench/timer.h"

namespace hipnorm::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Right outputs for the dtypes below f64: computed by aten in f64, then rounded once.
Outputs right_forward(const Inputs& in) {
  auto [y, mean, rstd] =
      at::native_layer_norm(in.x.to(at::kDouble), {in.shape.cols}, in.weight.to(at::kDouble),
                            in.bias.to(at::kDouble), kEps);
  return {y.to(in.x.scalar_type()), mean.to(at::kFloat), rstd.to(at::kFloat)};
}

Outputs right_backward(const Inputs& in) {
  const at::Tensor x = in.x.to(at::kDouble);
  const at::Tensor weight = in.weight.to(at::kDouble);
  const at::Tensor bias = in.bias.to(at::kDouble);
  auto [y, mean, rstd] = at::native_layer_norm(x, {in.shape.cols}, weight, bias, kEps);
  auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      in.dy.to(at::kDouble), x, {in.shape.cols}, mean, rstd, weight, bias, {true, true, true});
  const at::ScalarType dtype = in.x.scalar_type();
  return {dx.to(dtype), dweight.to(dtype), dbias.to(dtype)};
}

Outputs cloned(const Outputs& outputs) {
  return {outputs[0].clone(), outputs[1].clone(), outputs[2].clone()};
}

class CheckTest : public testing::TestWithParam<DType> {
 protected:
  Inputs inputs_ = make_inputs({7, 129}, GetParam(), at::kCPU, true);
};
INSTANTIATE_TEST_SUITE_P(DTypes, CheckTest, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(CheckTest, PassesCorrectlyRoundedResults) {
  const Outputs forward = right_forward(inputs_);
  const Checks checks = check_forward(inputs_, forward, forward, 2);
  EXPECT_TRUE(checks.hipnorm.ok) << checks.hipnorm.message;
  EXPECT_LE(checks.hipnorm.worst, 1);
  const Outputs backward = right_backward(inputs_);
  const Check back = check_backward(inputs_, backward, backward, 2).hipnorm;
  EXPECT_TRUE(back.ok) << back.message;
}

TEST_P(CheckTest, FindsOneWrongElementOfEveryOutput) {
  struct Case {
    int output;
    bool row_output;  // [M, N] or [M]: the element lies in row 5
    const char* forward_name;
    const char* backward_name;
  };
  for (const Case& c :
       {Case{0, true, "y", "dX"}, Case{1, true, "mean", "dW"}, Case{2, true, "rstd", "dB"}}) {
    const Outputs forward = right_forward(inputs_);
    Outputs wrong = cloned(forward);
    wrong[static_cast<std::size_t>(c.output)][5] *= 1.1;
    Checks checks = check_forward(inputs_, wrong, forward, 2);
    EXPECT_FALSE(checks.hipnorm.ok);
    EXPECT_TRUE(checks.aten.ok) << checks.aten.message;
    EXPECT_NE(checks.hipnorm.message.find(std::string(c.forward_name) + ":"), std::string::npos)
        << checks.hipnorm.message;
    EXPECT_NE(checks.hipnorm.message.find("(5, "), std::string::npos) << checks.hipnorm.message;

    const Outputs backward = right_backward(inputs_);
    wrong = cloned(backward);
    wrong[static_cast<std::size_t>(c.output)][5] *= 1.1;
    checks = check_backward(inputs_, backward, wrong, 2);
    EXPECT_TRUE(checks.hipnorm.ok) << checks.hipnorm.message;
    EXPECT_FALSE(checks.aten.ok);
    EXPECT_NE(checks.aten.message.find(std::string(c.backward_name) + ":"), std::string::npos)
        << checks.aten.message;
  }
}

TEST_P(CheckTest, NaNIsInfinitelyWrong) {
  const Outputs right = right_forward(inputs_);
  Outputs wrong = cloned(right);
  wrong[0][6][128] = kNaN;
  const Check check = check_forward(inputs_, wrong, right, 1).hipnorm;
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.worst, kInfinity);
  EXPECT_NE(check.message.find("(6, 128)"), std::string::npos) << check.message;
}

TEST(Check, RefusesOutputsOfAnotherSize) {
  const Inputs inputs = make_inputs({3, 5}, DType::f32, at::kCPU, true);
  const Outputs right = right_forward(inputs);
  Outputs wrong = right;
  wrong[0] = right[0].narrow(1, 0, 4);
  EXPECT_THROW(check_forward(inputs, wrong, right, 1), c10::Error);
  wrong = right_backward(inputs);
  wrong[1] = at::Tensor();
  EXPECT_THROW(check_backward(inputs, wrong, right_backward(inputs), 1), c10::Error);
}

TEST(Inputs, AreTheSameEveryTimeAndAcrossDtypes) {
  const Inputs f32 = make_inputs({3, 1000}, DType::f32, at::kCPU, true);
  const Inputs again = make_inputs({3, 1000}, DType::f32, at::kCPU, true);
  const Inputs bf16 = make_inputs({3, 1000}, DType::bf16, at::kCPU, true);
  EXPECT_TRUE(f32.x.equal(again.x));
  EXPECT_TRUE(f32.dy.equal(again.dy));
  EXPECT_TRUE(f32.x.to(at::kBFloat16).equal(bf16.x));
  EXPECT_FALSE(f32.x.equal(f32.dy));
  // 3000 values: the mean's standard deviation is 0.5/√3000 = 0.009.
  EXPECT_NEAR(f32.x.mean().item<double>(), -2.3, 0.05);
  EXPECT_NEAR(f32.x.std().item<double>(), 0.5, 0.05);
  EXPECT_NEAR(f32.dy.std().item<double>(), 1, 0.1);
}

TEST(Shapes, ParsesListsAndSets) {
  EXPECT_EQ(parse_shapes("7x9,1x256"), (std::vector<Shape>{{7, 9}, {1, 256}}));
  EXPECT_EQ(parse_shapes("seed").size(), 6u);
  EXPECT_EQ(parse_shapes("seed").back(), (Shape{4608, 40920}));
  EXPECT_EQ(parse_shapes("seed,llm").size(), shape_set("seed").size() + shape_set("llm").size());
  for (const char* bad : {"",
                          ",",
                          "7",
                          "x",
                          "7x",
                          "x7",
                          "12xx7",
                          "0x-3",
                          "-1x3",
                          "+1x3",
                          " 1x3",
                          "1x3 ",
                          "0x3",
                          "3x0",
                          "5x6x7",
                          "1.5x2",
                          "1e3x2",
                          "0x1F",
                          "7x9,7x9",
                          "seed,512x256",
                          "Seed",
                          "7X9",
                          "9223372036854775808x1",
                          "4294967296x4294967296"}) {
    EXPECT_THROW(parse_shapes(bad), std::invalid_argument) << "'" << bad << "'";
  }
  EXPECT_EQ(parse_shapes("2147483648x536870911").front().elements(),
            std::int64_t{2147483648} * 536870911);  // × 8 bytes is just below 2^63
}

Result example() {
  return {.shape = {1000, 2000},
          .dtype = DType::f32,
          .direction = Direction::backward,
          .selected = {"cpu_backward_row:vec_bytes=32,parts=2", "default"},
          .latencies = Latencies{.hipnorm = 2e-3, .aten = 5e-3, .copy = 1e-3},
          .hipnorm_error = 0.25,
          .aten_error = kInfinity};
}
const Origin kOrigin{.device = "a \"CPU\", 2 threads", .arch = "cpu-avx2", .torch = "2.13.0"};

TEST(Report, JsonHasTheNumbersOfEachSide) {
  std::istringstream lines(json_lines(example(), kOrigin));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["impl"], "hipnorm");
  EXPECT_EQ(rows[0]["device"], kOrigin.device);
  EXPECT_DOUBLE_EQ(rows[0]["latency_us"], 2000);
  EXPECT_DOUBLE_EQ(rows[0]["gbps"], 12);  // 3 tensors of 8 MB in 2 ms
  EXPECT_DOUBLE_EQ(rows[0]["copy_fraction"], 0.5);
  EXPECT_DOUBLE_EQ(rows[0]["speedup"], 2.5);
  EXPECT_DOUBLE_EQ(rows[0]["max_error"], 0.25);
  EXPECT_EQ(rows[1]["impl"], "aten");
  EXPECT_DOUBLE_EQ(rows[1]["copy_fraction"], 0.2);
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 1);
  EXPECT_TRUE(rows[1]["max_error"].is_null());  // JSON has no infinity
  EXPECT_TRUE(rows[1]["config"].is_null());
  EXPECT_EQ(rows[2]["impl"], "copy");
  EXPECT_DOUBLE_EQ(rows[2]["copy_fraction"], 1);
  EXPECT_DOUBLE_EQ(rows[2]["gbps"], 24);
}

TEST(Report, WrongResultHasOneRowWithoutTimes) {
  Result wrong = example();
  wrong.latencies.reset();
  wrong.hipnorm_error = 17;
  const nlohmann::json row = nlohmann::json::parse(json_lines(wrong, kOrigin));
  EXPECT_EQ(row["impl"], "hipnorm");
  EXPECT_DOUBLE_EQ(row["max_error"], 17);
  for (const char* field : {"latency_us", "gbps", "copy_fraction", "speedup"}) {
    EXPECT_TRUE(row[field].is_null()) << field;
  }
  EXPECT_NE(table_line(wrong).find("WRONG RESULT"), std::string::npos);
}

TEST(Report, CsvQuotesWhatNeedsIt) {
  const std::string text = csv_lines(example(), kOrigin);
  const std::string first = text.substr(0, text.find('\n'));
  EXPECT_EQ(first,
            "\"a \"\"CPU\"\", 2 threads\",cpu-avx2,2.13.0,f32,backward,1000,2000,hipnorm,"
            "\"cpu_backward_row:vec_bytes=32,parts=2\",default,2000,12,0.5,2.5,0.25");
}

TEST(Report, SummaryIsTheGeometricMeanOfLargeShapes) {
  Result fast = example();  // 2.5 × aten
  Result slow = example();
  slow.latencies->aten = 0.8e-3;  // 0.4 × aten: the two make exactly 1
  Result tiny = example();
  tiny.shape = {1023, 1024};  // below 2^20 elements
  tiny.latencies->aten = 1;
  const std::string text = summary({fast, slow, tiny});
  EXPECT_NE(text.find("f32  backward  1.00 x aten, 0.50 of the copy (2 shapes)"), std::string::npos)
      << text;
  EXPECT_EQ(summary({tiny}), "");
}

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hipnorm-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = pattern;
  }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }
  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void fill(const std::filesystem::path& path, const char* text) {
    std::ofstream(path) << text;
  }
  std::filesystem::path folder_;
};

TEST_F(OutputFileTest, ReplacesTheOldFileOnlyAtTheEnd) {
  const auto path = folder_ / "r.json";
  fill(path, "old");
  OutputFile file(path.string());
  file.write("new\n");
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(content(folder_ / "r.json.partial"), "new\n");
  file.commit();
  EXPECT_EQ(content(path), "new\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r.json.partial"));
}

TEST_F(OutputFileTest, WritesThroughASymbolicLink) {
  fill(folder_ / "target", "old");
  std::filesystem::create_symlink("target", folder_ / "link");
  OutputFile file((folder_ / "link").string());
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(folder_ / "target"), "new");
}

TEST_F(OutputFileTest, SaysWhichPathCannotBeWritten) {
  for (const auto& bad : {folder_ / "missing" / "r.json", folder_}) {
    try {
      OutputFile file(bad.string());
      FAIL() << bad;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(bad.string()), std::string::npos) << error.what();
    }
  }
}

TEST_F(OutputFileTest, KeepsAWriteProtectedFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  const auto path = folder_ / "r.json";
  fill(path, "old");
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  EXPECT_THROW(OutputFile file(path.string()), UsageError);
  EXPECT_EQ(content(path), "old");
}

TEST_F(OutputFileTest, AFullDeviceIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  OutputFile file("/dev/full");
  EXPECT_THROW(file.write("x"), std::runtime_error);
}

// A clock that only the sides move: medians are exact on the busiest machine.
class FakeStopwatch final : public Stopwatch {
 public:
  void start() override { begin_ = now; }
  double stop() override { return now - begin_; }
  double now = 0;

 private:
  double begin_ = 0;
};

class TimerTest : public testing::Test {
 protected:
  // A side whose calls take these times in turn, over and over, and that notes its letter.
  Side side(char letter, std::vector<double> times) {
    return {[this] { ++prepared_; },
            [this, letter, times = std::move(times), call = std::size_t{0}]() mutable {
              stopwatch_.now += times[call++ % times.size()];
              order_ += letter;
            },
            [this] { ++finished_; }};
  }
  FakeStopwatch stopwatch_;
  std::string order_;
  int prepared_ = 0;
  int finished_ = 0;
};

TEST_F(TimerTest, FlushedCallsTakeTurnsAndGiveMedians) {
  const std::vector<Side> sides = {side('a', {1, 2, 90}), side('b', {5}), side('c', {7, 8})};
  CacheFlusher flusher(at::kCPU);
  const std::vector<double> seconds =
      time_flushed(sides, stopwatch_, flusher, {.seconds = 0, .least = 4, .most = 9});
  // Two rounds to warm up, then the least; who begins changes from round to round.
  EXPECT_EQ(order_,
            "abcabc"
            "abcbcacababc");
  EXPECT_EQ(prepared_, 18);
  EXPECT_EQ(finished_, 18);
  // The third to sixth call of each: a takes 90, 1, 2, 90; c takes 7, 8, 7, 8.
  EXPECT_EQ(seconds, (std::vector<double>{46, 5, 7.5}));
}

TEST_F(TimerTest, BatchesGiveTheTimeOfOneCall) {
  const std::vector<Side> sides = {side('a', {2e-4}), side('b', {1e-5})};
  const std::vector<double> seconds =
      time_batches(sides, stopwatch_, {.seconds = 0, .least = 3, .most = 3});
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_NEAR(seconds[0], 2e-4, 1e-9);
  EXPECT_NEAR(seconds[1], 1e-5, 1e-10);
  // 40 calls each to warm up, then 3 batches of 1 ms: 5 and 100 calls, one more where the quotient
  // is rounded up.
  EXPECT_NEAR(static_cast<double>(std::count(order_.begin(), order_.end(), 'a')), 40 + 15, 3);
  EXPECT_NEAR(static_cast<double>(std::count(order_.begin(), order_.end(), 'b')), 40 + 300, 3);
}

TEST_F(TimerTest, RoundsFollowTheTimeAllowed) {
  const std::vector<Side> sides = {side('a', {1e-2})};  // batches of one call, 10 ms a round
  time_batches(sides, stopwatch_, {.seconds = 0.5, .least = 3, .most = 100});
  EXPECT_NEAR(static_cast<double>(order_.size()), 40 + 50, 1);
}

TEST(Stopwatch, MeasuresRealTime) {
  const std::unique_ptr<Stopwatch> stopwatch = make_stopwatch(at::kCPU);
  stopwatch->start();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(stopwatch->stop(), 5e-3);
}

// What this process burns is its own; what a child burns belongs to a neighbour.
TEST(Machine, TellsNeighboursFromItself) {
  const auto burn = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
    volatile int sink = 0;
    while (std::chrono::steady_clock::now() < end) sink = sink + 1;
  };
  const Neighbours alone;
  burn();
  const double before = alone.share();
  const Neighbours beside;
  const pid_t child = fork();
  if (child == 0) {
    burn();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const double during = beside.share();
  EXPECT_GE(before, 0);
  EXPECT_LE(before, 1);
  // Half of one processor's time, on however many there are.
  EXPECT_GE(during, 0.5 / std::max(1u, std::thread::hardware_concurrency()));
}

TEST(Machine, KnowsItsMemoryAndCaches) {
  EXPECT_GE(last_level_cache(), 256 << 10);
  const std::int64_t memory = available_memory();
  EXPECT_TRUE(memory == -1 || memory > (1 << 20)) << memory;
  EXPECT_FALSE(cpu_model().empty());
  // More than any machine has: 1e6 x 1e6 in f64, forward, is 24 TB.
  EXPECT_GT(needed_bytes({1000000, 1000000}, DType::f64, false, 1), std::int64_t{24} << 40 >> 1);
  EXPECT_LT(needed_bytes({7, 9}, DType::f64, true, 2), 128 << 20);
}

}  // namespace
}  // namespace hipnorm::bench
