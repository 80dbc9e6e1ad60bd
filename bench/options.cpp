#include "bench/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

namespace hipnorm::bench {
namespace {

constexpr int kMaxThreads = 1024;

constexpr const char* kDescription =
    "Measures hipnorm's LayerNorm against aten's and against the time of a plain copy.";

constexpr const char* kFooter = R"(
Each case is a shape, a dtype (weight and bias have it too) and a direction; backward gives dX, dW
and dB. Inputs: x = -2.3 + 0.5*randn; dy, weight, bias = randn; fixed seed; eps = 1e-5.

Correctness comes first: every element of every output is compared with LayerNorm computed in fp64.
A wrong result is printed with its place, is not timed, and makes the exit code 1 once the other
cases have ended. Exit code 2: bad input, nothing was measured.

Then hipnorm, aten and the limit are timed in turns, in an order that rotates, and the medians are
reported. The limit is torch's copy_ (forward: one read, one write) or add into an output (backward:
two reads, one write) of the same shape and dtype. Between calls, outside the timed region, a buffer
of 4 times the last-level cache (GPU: 1 GiB) is written and then read, so that inputs come from
memory and no dirty line is written back inside the timed region. On the CPU, where one tensor has
at most 1 MiB, call overhead is what counts: batches of calls (about 1 ms each) are timed on warm
caches instead. On a GPU the processor queues a call while the caches are still being emptied, so
that its own time does not show; a call of less than 20 us is also timed in a graph of many calls,
each on inputs of its own, without the 3 us or so that two events add.

Columns of the table (and fields of csv and json, where each case has one row for each impl:
hipnorm, aten, copy):
  shape (rows, cols)   M x N: N elements are normalized, M times
  dtype, direction     as asked for
  us (latency_us)      microseconds of one call, median
  aten us, copy us     the same for aten and for the limit
  GB/s (gbps)          bytes of the floor / time: 2*M*N*element size forward, 3*M*N*element size
                       backward. What is moved beyond the floor does not count
  of copy              time of the limit / time: 1 is as fast as a plain copy
   (copy_fraction)
  speed-up (speedup)   time of aten / time
  error (max_error)    worst error of any element, as a multiple of what is tolerated there: at most
                       1 passes. The tolerance is about one unit in the last place of the output's
                       dtype plus the fp32 rounding of the sums
  aten error           the same for aten, whose mean and rstd are judged by their own dtype
  config, source       what ran, and why: forced, table, near or default
  in graph (graph_us)  GPU, short calls: a second line with the time of one call among many in a
                       graph, and what follows from it
Further fields: device, arch (names the table of configs), torch (its version). A hipnorm row
without latency is a wrong result or, without max_error too, a call that failed. No value: null in
json, empty in csv.

With --output F, F receives the format asked for and standard output the table. Rows are written to
F.partial as they are measured, and F.partial is renamed to F at the end: F is always complete, and
an interrupted run leaves its rows in F.partial.)";

template <typename T>
void add_once(std::vector<T>& list, T value, std::string_view flag, std::string_view item) {
  if (std::find(list.begin(), list.end(), value) != list.end()) {
    throw UsageError(fmt::format("{}: '{}' is given twice", flag, item));
  }
  list.push_back(value);
}

std::vector<DType> parse_dtypes(std::string_view text) {
  std::vector<DType> dtypes;
  for (const std::string_view item : split_list(text)) {
    const std::optional<DType> dtype = parse_dtype(item);
    if (!dtype || *dtype == DType::none) {
      throw UsageError(
          fmt::format("--dtype: expected some of f32, f16, bf16, f64; got '{}'", item));
    }
    add_once(dtypes, *dtype, "--dtype", item);
  }
  return dtypes;
}

std::vector<Direction> parse_directions(std::string_view text) {
  std::vector<Direction> directions;
  for (const std::string_view item : split_list(text)) {
    if (item != "forward" && item != "backward") {
      throw UsageError(
          fmt::format("--direction: expected forward, backward or both; got '{}'", item));
    }
    add_once(directions, item == "forward" ? Direction::forward : Direction::backward,
             "--direction", item);
  }
  return directions;
}

template <typename T>
T parse_choice(std::string_view flag, std::string_view text,
               std::initializer_list<std::pair<std::string_view, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  throw UsageError(fmt::format("{}: expected one of {}; got '{}'", flag, names, text));
}

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string_view to_string(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  std::string device = "auto";
  std::string shapes = "seed";
  std::string dtypes = "bf16,f32";
  std::string directions = "forward,backward";
  std::string format = "table";

  CLI::App app(kDescription, "hipnorm-bench");
  app.footer(kFooter);
  app.add_option("--device", device,
                 "auto, cpu or cuda (NVIDIA and AMD GPUs alike); auto: the GPU where there is one "
                 "and this build has kernels for it")
      ->capture_default_str();
  app.add_option("--shapes", shapes,
                 "Comma-separated list of MxN and of the sets seed (wide rows from bug reports) "
                 "and llm (published models)")
      ->capture_default_str();
  app.add_option("--dtype", dtypes, "Comma-separated list of f32, f16, bf16, f64")
      ->capture_default_str();
  app.add_option("--direction", directions, "Comma-separated list of forward, backward")
      ->capture_default_str();
  app.add_option("--format", format, "table, csv, or json (one object per line)")
      ->capture_default_str();
  app.add_option("--output", options.output, "Write to this file, see below");
  app.add_option("--config", options.config,
                 "Force configs, as HIPNORM_FORCE_CONFIG does: 'op=variant:field=value,…;op=…', "
                 "for instance 'backward=cpu_backward_row:parts=2'");
  app.add_flag("--quick", options.quick,
               "Fewer repeats: the seed set in under two minutes on two cores. Correctness is "
               "checked all the same")
      ->disable_flag_override(true);
  app.add_flag("--fresh-pages", options.fresh_pages,
               "CPU: let every call of all sides write newly mapped pages, as malloc gives them to "
               "large outputs; without it outputs lie on resident pages, as in a running model")
      ->disable_flag_override(true);
  app.add_option("--threads", options.threads,
                 "CPU threads, at most 1024; by default as many as torch chooses");
  app.add_flag("--list-variants", options.list_variants,
               "Print every kernel variant, where it applies and the limits of its parameters")
      ->disable_flag_override(true);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(first_line(error.what()) + " (--help explains the flags)");
  }

  options.device = parse_choice<DeviceChoice>("--device", device,
                                              {{"auto", DeviceChoice::automatic},
                                               {"cpu", DeviceChoice::cpu},
                                               {"cuda", DeviceChoice::cuda}});
  options.format = parse_choice<Format>(
      "--format", format, {{"table", Format::table}, {"csv", Format::csv}, {"json", Format::json}});
  options.dtypes = parse_dtypes(dtypes);
  options.directions = parse_directions(directions);
  try {
    options.shapes = parse_shapes(shapes);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--shapes: {}", error.what()));
  }
  const bool threads_given = app.count("--threads") > 0;
  if (threads_given && (options.threads < 1 || options.threads > kMaxThreads)) {
    throw UsageError(
        fmt::format("--threads: expected 1 to {}; got {}", kMaxThreads, options.threads));
  }
  if (app.count("--output") > 0 && options.output.empty()) {
    throw UsageError("--output: expected a file name; got ''");
  }
  if (app.count("--config") > 0 && options.config.empty()) {
    throw UsageError("--config: expected 'op=variant:field=value,…'; got ''");
  }
  return options;
}

}  // namespace hipnorm::bench
