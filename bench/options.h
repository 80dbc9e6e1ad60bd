// The command line of hipnorm-bench.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/shapes.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::bench {

enum class Direction : std::uint8_t { forward, backward };
enum class Format : std::uint8_t { table, csv, json };
enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

std::string_view to_string(Direction direction);

// The exit codes.
inline constexpr int kExitWrong = 1;  // a wrong result, or a call or a write that failed
inline constexpr int kExitUsage = 2;  // bad input: nothing was measured

// Bad input; what() is one line for the user.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  std::vector<Direction> directions;
  Format format = Format::table;
  std::string output;  // empty: standard output
  std::string config;  // empty: nothing forced
  int threads = 0;     // 0: as torch chooses
  bool quick = false;
  bool fresh_pages = false;
  bool list_variants = false;
};

// nullopt: --help was given and its text printed on standard output. Throws UsageError.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace hipnorm::bench
