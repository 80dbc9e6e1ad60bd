// hipnorm-tune: see --help.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "bench/tune/cell.h"
#include "bench/tune/commands.h"
#include "bench/tune/supervisor.h"
#include "bench/tune/sweep.h"
#include "bench/tune/worker.h"

namespace {

using namespace hipnorm;
using namespace hipnorm::tune;

struct CellArguments {
  std::string shapes = "seed";
  std::string dtypes = "bf16,f16,f32";
  std::string ops = "forward,backward";

  void add_to(CLI::App& command) {
    command.add_option("--shapes", shapes, "seed, llm, grid or MxN, separated by commas")
        ->capture_default_str();
    add_kinds(command);
  }
  void add_kinds(CLI::App& command) {
    command.add_option("--dtype", dtypes, "bf16, f16, f32, f64, separated by commas")
        ->capture_default_str();
    command
        .add_option("--direction", ops,
                    "forward, backward, backward_fused, backward_two_kernel, separated by commas")
        ->capture_default_str();
  }
  std::vector<TableKey> cells() const {
    std::vector<DType> types;
    for (const std::string_view name : bench::split_list(dtypes)) {
      const auto type = parse_dtype(name);
      if (!type || *type == DType::none) {
        throw std::invalid_argument(
            fmt::format("--dtype: expected bf16, f16, f32 or f64, but got '{}'", name));
      }
      types.push_back(*type);
    }
    std::vector<Op> directions;
    for (const std::string_view name : bench::split_list(ops)) {
      const auto op = parse_op(name);
      if (!op) {
        throw std::invalid_argument(fmt::format(
            "--direction: expected forward, backward, backward_fused or backward_two_kernel, but "
            "got '{}'",
            name));
      }
      directions.push_back(*op);
    }
    return make_cells(parse_shapes(shapes), types, directions);
  }
};

// How a worker is started: as this very program.
std::vector<std::string> own_worker() {
  return {std::filesystem::read_symlink("/proc/self/exe").string(), "worker"};
}

int run(int argc, char** argv) {
  CLI::App app(
      "Measures which config of hipnorm's kernels is fastest for a shape, and fills the dispatch "
      "table (configs/README.md).");
  app.name("hipnorm-tune");
  app.require_subcommand(1);
  std::vector<std::string> worker;
  app.add_option("--worker", worker, "Command of the worker process, for tests")->group("");

  SweepOptions sweeping;
  CellArguments sweep_cells;
  CLI::App& sweep_command = *app.add_subcommand(
      "sweep", "Try configs of every cell in a worker process; journal what came of it");
  sweep_command.add_option("--device", sweeping.device, "cpu, gpu or gpu:INDEX")
      ->capture_default_str();
  sweep_cells.add_to(sweep_command);
  sweep_command.add_option("--budget", sweeping.budget, "Seconds; 0: until everything was tried")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sweeping.journal = "hipnorm-tune.jsonl";
  sweep_command.add_option("--journal", sweeping.journal, "File that results are appended to")
      ->capture_default_str();
  sweep_command.add_flag("--resume", sweeping.resume, "Go on with an existing journal");
  sweep_command.add_option("--most", sweeping.most, "Configs of a cell at most")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sweep_command.add_option("--first", sweeping.first,
                           "A config to try before all others; may be given many times");
  for (const auto& [name, limit] : {std::pair{"--hello-limit", &sweeping.hello_limit},
                                    std::pair{"--least-limit", &sweeping.least_limit}}) {
    sweep_command.add_option(name, *limit, "Seconds, for tests")->group("");
  }

  PromoteOptions promoting;
  CLI::App& promote_command =
      *app.add_subcommand("promote", "Write the results of a session into a table");
  promote_command.add_option("journal", promoting.journals, "Journals")->required();
  promote_command.add_option("--output", promoting.output,
                             "The table; default configs/<arch>.csv of the source folder");
  promote_command.add_option("--session", promoting.session, "Which session, where there are more");
  promote_command.add_flag("--allow-dirty", promoting.allow_dirty,
                           "Take results of a tree with uncommitted changes");

  VerifyOptions verifying;
  CLI::App& verify_command =
      *app.add_subcommand("verify", "Measure a table's rows against the default again");
  verify_command.add_option("--device", verifying.device, "cpu, gpu or gpu:INDEX")
      ->capture_default_str();
  verify_command.add_option("--table", verifying.table, "A file; default: the tables in use");
  verify_command.add_option("--budget", verifying.budget, "Seconds; 0: all rows")
      ->check(CLI::NonNegativeNumber);
  verify_command.add_flag("--accuracy-only", verifying.accuracy_only,
                          "Run every row and judge its results; take no times");

  std::string status_table;
  CLI::App& status_command =
      *app.add_subcommand("status", "List the tables, and rows older than their kernels");
  status_command.add_option("--table", status_table, "A file; default: the tables in use");

  RegretOptions regretting;
  CLI::App& regret_command = *app.add_subcommand(
      "regret", "How far this build's default is from the best that a sweep found");
  regret_command.add_option("journal", regretting.journal, "A journal; its last session counts")
      ->required();
  regret_command.add_option(
      "--device", regretting.device,
      "As for explain; default: the one that was measured, by its data sheet");

  ExplainOptions explaining;
  CellArguments explain_cells;
  explain_cells.dtypes = "bf16";
  CLI::App& explain_command =
      *app.add_subcommand("explain", "What would run for a shape, and why not something else");
  explain_command.add_option("shapes", explain_cells.shapes, "seed, llm, grid or MxN, by commas")
      ->required();
  explain_command
      .add_option("--device", explaining.device,
                  "cpu, gpu, or a GPU that is not here, by architecture or name: "
                  "sm_90, H100, gfx942, MI350X …")
      ->capture_default_str();
  explain_cells.add_kinds(explain_command);

  CLI::App& worker_command = *app.add_subcommand("worker", "")->group("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  if (worker_command.parsed()) return run_worker();
  if (worker.empty()) worker = own_worker();
  watch_signals();
  try {
    if (sweep_command.parsed()) {
      sweeping.cells = sweep_cells.cells();
      sweeping.worker = worker;
      return sweep(sweeping);
    }
    if (promote_command.parsed()) return promote(promoting);
    if (verify_command.parsed()) {
      verifying.worker = worker;
      return verify(verifying);
    }
    if (status_command.parsed()) return status(status_table);
    if (regret_command.parsed()) return regret(regretting);
    explaining.cells = explain_cells.cells();
    return explain(explaining);
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "hipnorm-tune: {}\n", error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "hipnorm-tune: {}\n", error.what());
    return 1;
  }
}
