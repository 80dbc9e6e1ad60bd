// What goes in and out as text: shapes, the numbers in a row, the output file's life.
#include "bench/report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/shapes.h"

namespace hipnorm::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
          .in_graph = {},
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
            "\"cpu_backward_row:vec_bytes=32,parts=2\",default,2000,12,0.5,2.5,0.25,");
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

}  // namespace
}  // namespace hipnorm::bench
