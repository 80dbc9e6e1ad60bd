#include "bench/run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "bench/check.h"
#include "bench/gpu.h"
#include "bench/graph_timer.h"
#include "bench/inputs.h"
#include "bench/machine.h"
#include "bench/operators.h"
#include "bench/report.h"
#include "bench/timer.h"
#include "csrc/dispatch/forced.h"
#include "kernels/launch.h"

namespace hipnorm::bench {
namespace {

// [M, N] tensors up to this size stay in a core's caches from call to call.
constexpr std::int64_t kBatchBytes = std::int64_t{1} << 20;

constexpr Repeats kFull{.seconds = 3, .least = 7, .most = 301};
constexpr Repeats kQuick{.seconds = 0.6, .least = 3, .most = 101};

// On a GPU two events around a call measure some 3 µs beside it: calls shorter than this are also
// timed many in a graph.
constexpr double kShortCall = 20e-6;

// A neighbour that takes more than this share of the processors' time is reported: with as many
// threads as cores, a call waits for the thread that was displaced, whole scheduler slices long.
constexpr double kBusyShare = 0.05;

// A line that overwrites itself on a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(std::size_t cases) : cases_(cases), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() { clear(); }
  void show(std::size_t number, const std::string& text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K[{}/{}] {}", number, cases_, text);
    std::fflush(stderr);
    shown_ = true;
  }
  void clear() {
    if (shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  std::size_t cases_;
  bool terminal_;
  bool shown_ = false;
};

at::Device choose_device(DeviceChoice choice) {
  if (choice == DeviceChoice::cpu) return at::kCPU;
  const bool backend = c10::impl::hasDeviceGuardImpl(at::kCUDA);
  const bool gpu = backend && c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount() > 0;
  const bool kernels = has_gpu_kernels();
  if (gpu && kernels) return {at::kCUDA, 0};
  if (choice == DeviceChoice::automatic) return at::kCPU;
  if (!backend) {
    throw UsageError(fmt::format(
        "--device cuda: expected a torch with GPU support; torch {} here is a CPU build",
        TORCH_VERSION));
  }
  if (!gpu) throw UsageError("--device cuda: expected a GPU; torch sees none");
  throw UsageError("--device cuda: expected GPU kernels; this build of hipnorm has none");
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// The tensors of every case must fit, the flush buffer beside them. On the GPU this checks the
// host's side, where the judge works; the device's allocator speaks for the device.
void check_memory(const Options& options, bool with_dy, int threads) {
  const std::int64_t available = available_memory();
  if (available < 0) return;
  const std::int64_t flush = 4 * last_level_cache();
  for (const Shape& shape : options.shapes) {
    for (const DType dtype : options.dtypes) {
      const std::int64_t needed = needed_bytes(shape, dtype, with_dy, threads);
      if (needed > available - flush) {
        throw UsageError(fmt::format("--shapes: {} in {} needs {} of memory; {} are available",
                                     to_string(shape), to_string(dtype), gib(needed),
                                     gib(available - flush)));
      }
    }
  }
}

// The instruction set that the CPU kernels use. What it refuses is HIPNORM_CPU_CAPABILITY.
std::string cpu_arch(int threads) {
  try {
    return cpu_device(threads).arch;
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

std::string gpu_arch(at::Device device) {
  try {
    return gpu_device(device.index()).arch;
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("{}: {}", device.str(), error.what()));
  }
}

// The operators read HIPNORM_FORCE_CONFIG once, at their first call. The variable and not a guard:
// the operator library hides its symbols, so that a guard made here would guard this program only.
void force_config(const std::string& config) {
  try {
    if (config.empty()) {
      forced_config(Op::forward);  // throws where the variable cannot be read
      return;
    }
    const ForcedConfigGuard parsed(config);
  } catch (const std::invalid_argument& error) {
    throw UsageError(config.empty() ? error.what() : fmt::format("--config: {}", error.what()));
  }
  setenv("HIPNORM_FORCE_CONFIG", config.c_str(), 1);
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        device_(choose_device(options.device)),
        progress_(options.shapes.size() * options.dtypes.size() * options.directions.size()) {
    for (const Direction direction : options.directions) {
      with_dy_ = with_dy_ || direction == Direction::backward;
    }
    if (options.threads > 0) at::set_num_threads(options.threads);
    threads_ = at::get_num_threads();
    check_memory(options, with_dy_, threads_);
    const std::string arch = device_.is_cpu() ? cpu_arch(threads_) : gpu_arch(device_);
    // Graphs cannot be recorded from the default stream; for comparison everything runs on one.
    if (!device_.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      stream_.emplace(guard.getStreamFromGlobalPool(device_));
    }
    force_config(options.config);
    if (!options.output.empty()) file_.emplace(options.output);
    if (!set_heap(options.fresh_pages ? Pages::fresh : Pages::resident)) {
      print(stderr,
            "hipnorm-bench: this allocator cannot be told which pages to use: calls that "
            "allocate may look slow\n");
    }
    const std::string cpu =
        fmt::format("{}, {} thread{}", cpu_model(), threads_, threads_ == 1 ? "" : "s");
    origin_ = {.device = device_.is_cpu() ? cpu : gpu_name(device_.index()),
               .arch = arch,
               .torch = TORCH_VERSION};
  }

  int all() {
    stopwatch_ = make_stopwatch(device_);
    flusher_.emplace(device_);
    begin();
    const Neighbours neighbours;
    for (const Shape& shape : options_.shapes) {
      for (const DType dtype : options_.dtypes) measure(shape, dtype);
    }
    progress_.clear();
    print(to_stdout_ == Format::table ? stdout : stderr, summary(results_));
    if (const double share = neighbours.share(); device_.is_cpu() && share > kBusyShare) {
      print(stderr,
            fmt::format("hipnorm-bench: other programs took {:.0f} % of the processors' time "
                        "meanwhile: these times are not to be relied on\n",
                        share * 100));
    }
    if (file_) file_->commit();
    return failed_ ? kExitWrong : 0;
  }

 private:
  void print(std::FILE* stream, const std::string& text) {
    if (text.empty()) return;
    progress_.clear();
    if (std::fputs(text.c_str(), stream) < 0 || std::fflush(stream) != 0) {
      throw std::runtime_error("cannot write to standard output");
    }
  }

  // Where the rows go to standard output as csv or json, nothing else may.
  void begin() {
    to_stdout_ = file_ ? Format::table : options_.format;
    print(
        to_stdout_ == Format::table ? stdout : stderr,
        fmt::format("{}{}, torch {}{}{}\n", origin_.device,
                    origin_.arch.empty() ? "" : fmt::format(" ({})", origin_.arch), origin_.torch,
                    options_.fresh_pages ? ", fresh pages" : "", options_.quick ? ", quick" : ""));
    if (to_stdout_ == Format::table) print(stdout, table_header() + '\n');
    if (to_stdout_ == Format::csv) print(stdout, csv_header());
    if (!file_) return;
    if (options_.format == Format::csv) file_->write(csv_header());
    if (options_.format == Format::table) file_->write(table_header() + '\n');
  }

  void add(Result result) {
    const auto text = [&](Format format) {
      switch (format) {
        case Format::csv: return csv_lines(result, origin_);
        case Format::json: return json_lines(result, origin_);
        case Format::table: break;
      }
      return table_line(result) + '\n';
    };
    print(stdout, text(to_stdout_));
    if (file_) file_->write(text(options_.format));
    results_.push_back(std::move(result));
  }

  void fail(const Result& result, const std::string& message) {
    failed_ = true;
    print(stderr, fmt::format("hipnorm-bench: {} {} {}: {}\n", to_string(result.shape),
                              to_string(result.dtype), to_string(result.direction), message));
  }

  void measure(const Shape& shape, DType dtype) {
    std::optional<Inputs> inputs;
    for (const Direction direction : options_.directions) {
      ++case_;
      Result result{.shape = shape,
                    .dtype = dtype,
                    .direction = direction,
                    .selected = {},
                    .latencies = {},
                    .in_graph = {},
                    .hipnorm_error = {},
                    .aten_error = {}};
      try {
        show(result, "inputs");
        if (!inputs) inputs = make_inputs(shape, dtype, device_, with_dy_);
        result.selected = selected_config(*inputs, direction);
        if (direction == Direction::forward) {
          forward(*inputs, result);
        } else {
          backward(*inputs, result);
        }
      } catch (const std::exception& error) {
        fail(result, message_of(error));
      }
      add(std::move(result));
    }
  }

  void forward(const Inputs& inputs, Result& result) {
    show(result, "checking");
    const bool right = judged(
        result, check_forward(inputs, hipnorm_forward(inputs), aten_forward(inputs), threads_));
    if (!right) return;
    time(inputs, result, {[](const Inputs& in, const Statistics&) { return hipnorm_forward(in); }},
         {[](const Inputs& in, const Statistics&) { return aten_forward(in); }});
  }

  void backward(const Inputs& inputs, Result& result) {
    show(result, "checking");
    const auto statistics = [](const Outputs& outputs) {
      return Statistics{outputs[1], outputs[2]};
    };
    const Statistics ours = statistics(hipnorm_forward(inputs));
    const Statistics atens = statistics(aten_forward(inputs));
    const bool right = judged(result, check_backward(inputs, hipnorm_backward(inputs, ours),
                                                     aten_backward(inputs, atens), threads_));
    if (!right) return;
    time(inputs, result, {hipnorm_backward, ours}, {aten_backward, atens});
  }

  bool judged(Result& result, const Checks& checks) {
    result.hipnorm_error = checks.hipnorm.worst;
    result.aten_error = checks.aten.worst;
    if (!checks.hipnorm.ok) fail(result, "wrong result, not timed: " + checks.hipnorm.message);
    return checks.hipnorm.ok;
  }

  struct Timed {
    Call call;
    Statistics statistics = {};
  };

  void time(const Inputs& inputs, Result& result, const Timed& ours, const Timed& aten) {
    show(result, "timing");
    // Every side's output is dropped before its next call (and, flushed, before the next side's),
    // so that on resident pages all of them, the limit's included, write the same block of the
    // heap.
    Outputs out;
    const auto nothing = [] {};
    const auto drop = [&] { out = {}; };
    const auto allocate = [&] { out[0] = at::empty_like(inputs.x); };
    const auto call = [&](const Timed& side) {
      return [&out, &inputs, &side] {
        out = {};
        out = side.call(inputs, side.statistics);
      };
    };
    const auto copy = [&] { limit(inputs, result.direction, out[0]); };
    const auto fresh_copy = [&] {
      drop();
      allocate();
      copy();
    };
    std::vector<Side> sides = {{nothing, call(ours), drop}, {nothing, call(aten), drop}};
    if (options_.fresh_pages) {
      sides.push_back({nothing, fresh_copy, drop});
    } else {
      sides.push_back({allocate, copy, drop});
    }
    const Repeats& repeats = options_.quick ? kQuick : kFull;
    const bool batches = device_.is_cpu() && inputs.tensor_bytes() <= kBatchBytes;
    const std::vector<double> seconds = batches
                                            ? time_batches(sides, *stopwatch_, repeats)
                                            : time_flushed(sides, *stopwatch_, *flusher_, repeats);
    result.latencies = {.hipnorm = seconds[0], .aten = seconds[1], .copy = seconds[2]};
    if (!device_.is_cpu() && seconds[0] < kShortCall) {
      result.in_graph = time_in_graphs(inputs, result.direction, ours.call, ours.statistics,
                                       aten.call, aten.statistics, *stopwatch_, *flusher_, repeats);
    }
  }

  void show(const Result& result, const char* step) {
    progress_.show(case_, fmt::format("{} {} {}: {}", to_string(result.shape),
                                      to_string(result.dtype), to_string(result.direction), step));
  }

  const Options& options_;
  at::Device device_;
  std::optional<c10::StreamGuard> stream_;
  Progress progress_;
  bool with_dy_ = false;
  int threads_ = 1;
  Origin origin_;
  std::optional<OutputFile> file_;
  Format to_stdout_ = Format::table;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::optional<CacheFlusher> flusher_;
  std::size_t case_ = 0;
  std::vector<Result> results_;
  bool failed_ = false;
};

}  // namespace

int run(const Options& options) { return Run(options).all(); }

}  // namespace hipnorm::bench
