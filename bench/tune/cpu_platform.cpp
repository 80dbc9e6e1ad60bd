#include "bench/tune/cpu_workbench.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

#include "bench/machine.h"
#include "bench/tune/inputs.h"
#include "kernels/launch.h"
#include "tests/reference/judge.h"

namespace hipnorm::tune {
namespace {

// OMP_NUM_THREADS, as torch reads it; else one for each processor.
int thread_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  if (wanted > 0) return wanted;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(std::int64_t tasks, void (*task)(void* data, std::int64_t i), void* data) {
  const int threads = thread_count();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < tasks; ++i) task(data, i);
}

// Bytes between guards, 64-byte aligned. 0xff everywhere is NaN in every format.
class Guarded {
 public:
  static constexpr std::size_t kGuard = 4096;
  explicit Guarded(std::size_t bytes) : bytes_(bytes) {
    const std::size_t size = (bytes + 2 * kGuard + 63) / 64 * 64;
    block_ = static_cast<unsigned char*>(std::aligned_alloc(64, size));
    if (block_ == nullptr) throw std::bad_alloc();
    std::memset(block_, kFill, size);
  }
  ~Guarded() { std::free(block_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  unsigned char* data() { return block_ + kGuard; }
  std::size_t bytes() const { return bytes_; }
  void fill() { std::memset(data(), kFill, bytes_); }
  bool intact() const {
    const auto untouched = [](unsigned char byte) { return byte == kFill; };
    return std::all_of(block_, block_ + kGuard, untouched) &&
           std::all_of(block_ + kGuard + bytes_, block_ + 2 * kGuard + bytes_, untouched);
  }

 private:
  static constexpr unsigned char kFill = 0xff;
  std::size_t bytes_;
  unsigned char* block_ = nullptr;
};

struct Output {
  const char* name;
  Guarded memory;
  std::vector<unsigned char> first = {};  // what the first of two runs wrote
  void* pointer() { return memory.bytes() == 0 ? nullptr : memory.data(); }
};

class CpuWorkbench final : public Workbench {
 public:
  CpuWorkbench(const Machine& machine, const TableKey& cell)
      : device_(*machine.device),
        threads_(thread_count()),
        inputs_(cell, threads_),
        outputs_{Output{"y", sized(forward(), tensor())},
                 Output{"mean", sized(forward(), statistic())},
                 Output{"rstd", sized(forward(), statistic())},
                 Output{"dX", sized(problem().grads.dx, tensor())},
                 Output{"dW", sized(problem().grads.dweight, parameter())},
                 Output{"dB", sized(problem().grads.dbias, parameter())}},
        flush_(static_cast<std::size_t>(4 * bench::last_level_cache())) {}

  Finding check(const Config& config) override {
    for (Output& output : outputs_) output.memory.fill();
    run(config);
    for (Output& output : outputs_) {
      output.first.assign(output.memory.data(), output.memory.data() + output.memory.bytes());
      output.memory.fill();
    }
    run(config);
    for (Output& output : outputs_) {
      if (!output.memory.intact())
        return {.reason = std::string("wrote outside of ") + output.name};
      if (!std::equal(output.first.begin(), output.first.end(), output.memory.data())) {
        return {.reason = std::string(output.name) + " differs between two runs"};
      }
    }
    return judge();
  }

  std::vector<std::vector<double>> time(std::span<const Config> configs, int rounds) override {
    std::vector<std::vector<double>> samples(configs.size());
    inputs_.swap_ordinary_rows();
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < configs.size(); ++i) {
        const std::size_t at = (static_cast<std::size_t>(round) + i) % configs.size();
        flush();
        const auto begin = std::chrono::steady_clock::now();
        run(configs[at]);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        samples[at].push_back(seconds.count());
      }
    }
    inputs_.swap_ordinary_rows();
    return samples;
  }

 private:
  const Problem& problem() const { return inputs_.problem; }
  bool forward() const { return !problem().is_backward(); }
  std::int64_t tensor() const { return problem().tensor_bytes(); }
  std::int64_t statistic() const { return problem().rows * size_of(accumulate_type(problem().x)); }
  std::int64_t parameter() const { return problem().cols * size_of(problem().weight); }
  static Guarded sized(bool wanted, std::int64_t bytes) {
    return Guarded(wanted ? static_cast<std::size_t>(bytes) : 0);
  }

  void run(const Config& config) {
    const Plan sizes = plan(config, problem(), device_);
    if (workspace_.size() < static_cast<std::size_t>(sizes.workspace_bytes) + 64) {
      workspace_.resize(static_cast<std::size_t>(sizes.workspace_bytes) + 64);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    void* workspace = workspace_.data() + (64 - address % 64) % 64;
    const Launch launch{.problem = problem(),
                        .device = device_,
                        .config = config,
                        .plan = sizes,
                        .parallel_for = parallel_for};
    const void* weight = problem().has_weight ? inputs_.weight.data() : nullptr;
    const void* bias = problem().has_bias ? inputs_.bias.data() : nullptr;
    const Error error = forward() ? launch_forward({.x = inputs_.x.data(),
                                                    .x_stride = problem().cols,
                                                    .weight = weight,
                                                    .bias = bias,
                                                    .eps = inputs_.eps,
                                                    .y = outputs_[0].pointer(),
                                                    .mean = outputs_[1].pointer(),
                                                    .rstd = outputs_[2].pointer(),
                                                    .workspace = workspace},
                                                   launch)
                                  : launch_backward({.dy = inputs_.dy.data(),
                                                     .dy_stride = problem().cols,
                                                     .x = inputs_.x.data(),
                                                     .x_stride = problem().cols,
                                                     .mean = inputs_.mean.data(),
                                                     .rstd = inputs_.rstd.data(),
                                                     .weight = weight,
                                                     .dx = outputs_[3].pointer(),
                                                     .dweight = outputs_[4].pointer(),
                                                     .dbias = outputs_[5].pointer(),
                                                     .workspace = workspace},
                                                    launch);
    if (error) throw std::runtime_error(*error);
  }

  Finding judge() {
    const DType accumulate = accumulate_type(problem().x);
    if (forward()) {
      const auto verdict =
          reference::judge_forward(inputs_.forward(),
                                   {{problem().x, outputs_[0].pointer(), problem().cols},
                                    {accumulate, outputs_[1].pointer()},
                                    {accumulate, outputs_[2].pointer()}},
                                   threads_);
      return {verdict.ok(), verdict.worst(), verdict.ok() ? "" : verdict.describe()};
    }
    const auto verdict =
        reference::judge_backward(inputs_.backward(),
                                  {{problem().x, outputs_[3].pointer(), problem().cols},
                                   {problem().weight, outputs_[4].pointer()},
                                   {problem().weight, outputs_[5].pointer()}},
                                  threads_);
    return {verdict.ok(), verdict.worst(), verdict.ok() ? "" : verdict.describe()};
  }

  // Writes, then reads a buffer of four times the last-level cache.
  void flush() {
    volatile char* data = flush_.data();
    const auto lines = static_cast<std::int64_t>(flush_.size() / 64);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t i = 0; i < lines; ++i) data[64 * i] = static_cast<char>(data[64 * i] + 1);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t i = 0; i < lines; ++i) static_cast<void>(data[64 * i]);
  }

  const Device& device_;
  int threads_;
  Inputs inputs_;
  Output outputs_[6];
  std::vector<char> workspace_;
  std::vector<char> flush_;
};

}  // namespace

Machine cpu_machine() {
  return {.device = &cpu_device(thread_count()), .name = bench::cpu_model(), .driver = ""};
}

std::unique_ptr<Workbench> make_cpu_workbench(const Machine& machine, const TableKey& cell) {
  return std::make_unique<CpuWorkbench>(machine, cell);
}

}  // namespace hipnorm::tune
