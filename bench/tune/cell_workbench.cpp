#include "bench/tune/cell_workbench.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/tune/inputs.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/text.h"
#include "tests/reference/bounds.h"
#include "tests/reference/judge.h"

namespace hipnorm::tune {
namespace {

// Memory between guards, exact to the byte; NaN until it is written.
class Guarded {
 public:
  static constexpr std::size_t kGuard = 4096;
  Guarded(Platform& platform, std::size_t bytes)
      : platform_(platform), bytes_(bytes), block_(platform.allocate(bytes + 2 * kGuard)) {
    platform_.fill(block_, bytes + 2 * kGuard);
  }
  ~Guarded() { platform_.release(block_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* data() const { return block_ + kGuard; }
  char* data_or_null() const { return bytes_ == 0 ? nullptr : data(); }
  std::size_t bytes() const { return bytes_; }
  void fill() { platform_.fill(data(), bytes_); }
  // Whether nothing was written before the memory or behind its first `used` bytes.
  bool intact(std::size_t used) const {
    return platform_.differing(block_, nullptr, kGuard).count == 0 &&
           platform_.differing(data() + used, nullptr, bytes_ - used + kGuard).count == 0;
  }

 private:
  Platform& platform_;
  std::size_t bytes_;
  char* block_;
};
using Buffer = std::unique_ptr<Guarded>;

// One output: where it lies, a copy of the first of two runs, and what is allowed, where bounds
// could be made.
struct Output {
  const char* name;
  DType dtype;
  std::int64_t cols;  // elements of one of its rows
  Buffer memory = nullptr, first = nullptr, low = nullptr, high = nullptr;
  bool must_be_nan = false;
  std::int64_t count() const { return static_cast<std::int64_t>(memory->bytes()) / size_of(dtype); }
};

class CellWorkbench final : public Workbench {
 public:
  CellWorkbench(std::unique_ptr<Platform> platform, const Device& device, const TableKey& cell,
                const Launchers& launchers)
      : platform_(std::move(platform)), device_(device), launchers_(launchers) {
    if (cell.x == DType::f64 && device.kind == DeviceKind::gpu) {
      throw std::runtime_error("f64 is not swept on a GPU");
    }
    Inputs inputs(cell, platform_->threads());
    problem_ = inputs.problem;
    eps_ = inputs.eps;
    add_outputs(inputs);
    x_ = upload(inputs.x);
    dy_ = upload(inputs.dy);
    weight_ = upload(inputs.weight);
    bias_ = upload(inputs.bias);
    mean_ = upload(inputs.mean);
    rstd_ = upload(inputs.rstd);
    spare_rows_ = allocate(inputs.ordinary_rows.size());
    ordinary_rows_ = upload(inputs.ordinary_rows);
    workspace_ = allocate(0);
  }

  Finding check(const Config& config) override {
    const Plan sizes = plan(config, problem_, device_);
    const auto used = static_cast<std::size_t>(sizes.workspace_bytes);
    if (workspace_->bytes() < used) workspace_ = allocate(used);
    // Whatever an earlier run left is gone: a partial row that nobody writes is NaN.
    const auto run_afresh = [&] {
      workspace_->fill();
      for (Output& output : outputs_) output.memory->fill();
      run(config, sizes);
      platform_->wait();
    };
    run_afresh();
    for (Output& o : outputs_) {
      platform_->copy(o.first->data(), o.memory->data(), o.memory->bytes());
    }
    run_afresh();
    for (const Output& o : outputs_) {
      if (!o.memory->intact(o.memory->bytes())) {
        return {.reason = concat("wrote outside of ", o.name)};
      }
      const Faults faults =
          platform_->differing(o.first->data(), o.memory->data(), o.memory->bytes());
      if (faults.count > 0) {
        return {.reason = concat(o.name, " differs between two runs in ", faults.count, " bytes")};
      }
    }
    if (!workspace_->intact(used)) return {.reason = "wrote outside of the workspace"};
    return problem_.x == DType::f64 ? judge_f64() : judge();
  }

  std::vector<std::vector<double>> time(std::span<const Config> configs, int rounds) override {
    std::vector<std::vector<double>> samples(configs.size());
    if (rounds <= 0) return samples;
    std::vector<Plan> plans;
    for (const Config& config : configs) {
      plans.push_back(plan(config, problem_, device_));
      const auto needed = static_cast<std::size_t>(plans.back().workspace_bytes);
      if (workspace_->bytes() < needed) workspace_ = allocate(needed);
    }
    swap_ordinary_rows();
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < configs.size(); ++i) {
        const std::size_t at = (static_cast<std::size_t>(round) + i) % configs.size();
        samples[at].push_back(platform_->time([&] { run(configs[at], plans[at]); }));
      }
    }
    swap_ordinary_rows();
    return samples;
  }

 private:
  Buffer allocate(std::size_t bytes) { return std::make_unique<Guarded>(*platform_, bytes); }
  // The host's copy is given up.
  Buffer upload(std::vector<char>& host) {
    Buffer buffer = allocate(host.size());
    platform_->upload(buffer->data(), host.data(), host.size());
    std::vector<char>().swap(host);
    return buffer;
  }

  // The truth is formed here, once.
  void add_outputs(const Inputs& inputs) {
    const DType accumulate = accumulate_type(problem_.x);
    const std::int64_t rows = problem_.rows, cols = problem_.cols;
    const auto add = [&](const char* name, bool wanted, DType dtype, std::int64_t count,
                         std::int64_t row, reference::Bounds* bounds) {
      Output output{.name = name, .dtype = dtype, .cols = row};
      const std::int64_t bytes = wanted ? count * size_of(dtype) : 0;
      output.memory = allocate(static_cast<std::size_t>(bytes));
      output.first = allocate(static_cast<std::size_t>(bytes));
      if (wanted && bounds != nullptr) {
        output.must_be_nan = bounds->nan == reference::Bounds::Nan::must_be_nan;
        output.low = upload(bounds->low);
        output.high = upload(bounds->high);
      }
      outputs_.push_back(std::move(output));
    };
    const bool bounded = problem_.x != DType::f64;
    if (problem_.is_backward()) {
      std::optional<reference::BackwardBounds> b;
      if (bounded) {
        b = reference::backward_bounds(inputs.backward(), problem_.weight, platform_->threads());
      }
      const GradMask grads = problem_.grads;
      add("dX", grads.dx, problem_.x, rows * cols, cols, b ? &b->dx : nullptr);
      add("dW", grads.dweight, problem_.weight, cols, cols, b ? &b->dweight : nullptr);
      add("dB", grads.dbias, problem_.weight, cols, cols, b ? &b->dbias : nullptr);
    } else {
      std::optional<reference::ForwardBounds> b;
      if (bounded) b = reference::forward_bounds(inputs.forward(), platform_->threads());
      add("y", true, problem_.x, rows * cols, cols, b ? &b->y : nullptr);
      add("mean", true, accumulate, rows, 1, b ? &b->mean : nullptr);
      add("rstd", true, accumulate, rows, 1, b ? &b->rstd : nullptr);
    }
  }

  ForwardArgs forward_args() const {
    return {.x = x_->data(),
            .x_stride = problem_.cols,
            .weight = weight_->data_or_null(),
            .bias = bias_->data_or_null(),
            .eps = eps_,
            .y = outputs_[0].memory->data(),
            .mean = outputs_[1].memory->data(),
            .rstd = outputs_[2].memory->data(),
            .workspace = workspace_->data()};
  }
  BackwardArgs backward_args() const {
    return {.dy = dy_->data(),
            .dy_stride = problem_.cols,
            .x = x_->data(),
            .x_stride = problem_.cols,
            .mean = mean_->data(),
            .rstd = rstd_->data(),
            .weight = weight_->data_or_null(),
            .dx = outputs_[0].memory->data_or_null(),
            .dweight = outputs_[1].memory->data_or_null(),
            .dbias = outputs_[2].memory->data_or_null(),
            .workspace = workspace_->data()};
  }

  void run(const Config& config, const Plan& sizes) {
    const Launch launch{.problem = problem_,
                        .device = device_,
                        .config = config,
                        .plan = sizes,
                        .parallel_for = platform_->parallel_for()};
    const Error error = problem_.is_backward() ? launchers_.backward(backward_args(), launch)
                                               : launchers_.forward(forward_args(), launch);
    if (error) throw std::runtime_error(*error);
  }

  Finding judge() {
    Finding finding{.right = true, .worst = 0, .reason = ""};
    for (const Output& o : outputs_) {
      if (o.count() == 0) continue;
      const Faults faults = platform_->judge({.dtype = o.dtype,
                                              .must_be_nan = o.must_be_nan,
                                              .got = o.memory->data(),
                                              .low = o.low->data(),
                                              .high = o.high->data(),
                                              .count = o.count()});
      finding.worst = std::max(finding.worst, faults.worst);
      if (faults.count == 0) continue;
      finding.right = false;
      const auto first = static_cast<std::int64_t>(faults.first);
      finding.reason +=
          concat(finding.reason.empty() ? "" : "; ", o.name, ": ", faults.count,
                 " elements wrong, the first at (", first / o.cols, ", ", first % o.cols, ')');
    }
    return finding;
  }

  // The truth of f64 is kept in long double: no bounds in f64 stand for it, so it is formed for
  // every config. On the CPU only, where its memory is the host's.
  Finding judge_f64() const {
    using reference::Matrix;
    using reference::Vector;
    const auto of = [](const Output& o) { return Vector{o.dtype, o.memory->data_or_null()}; };
    const Vector weight{problem_.weight, weight_->data_or_null()};
    const Matrix x{problem_.x, x_->data(), problem_.cols};
    if (problem_.is_backward()) {
      const auto verdict = reference::judge_backward(
          {.rows = problem_.rows,
           .cols = problem_.cols,
           .dy = {problem_.x, dy_->data(), problem_.cols},
           .x = x,
           .weight = weight,
           .mean = {problem_.x, mean_->data()},
           .rstd = {problem_.x, rstd_->data()},
           .eps = eps_},
          {{problem_.x, outputs_[0].memory->data_or_null(), problem_.cols},
           of(outputs_[1]),
           of(outputs_[2])},
          platform_->threads());
      return {verdict.ok(), verdict.worst(), verdict.ok() ? "" : verdict.describe()};
    }
    const auto verdict = reference::judge_forward(
        {.rows = problem_.rows,
         .cols = problem_.cols,
         .x = x,
         .weight = weight,
         .bias = {problem_.weight, bias_->data_or_null()},
         .eps = eps_},
        {{problem_.x, outputs_[0].memory->data(), problem_.cols}, of(outputs_[1]), of(outputs_[2])},
        platform_->threads());
    return {verdict.ok(), verdict.worst(), verdict.ok() ? "" : verdict.describe()};
  }

  // Puts rows without NaN and Inf in the place of those that have some; the next call puts them
  // back.
  void swap_ordinary_rows() {
    const std::size_t bytes = ordinary_rows_->bytes();
    if (bytes == 0) return;
    char* rows = (problem_.is_backward() ? dy_ : x_)->data() +
                 Inputs::kFirstBadRow * problem_.cols * size_of(problem_.x);
    platform_->copy(spare_rows_->data(), rows, bytes);
    platform_->copy(rows, ordinary_rows_->data(), bytes);
    std::swap(ordinary_rows_, spare_rows_);
  }

  std::unique_ptr<Platform> platform_;  // first: outlives the buffers
  const Device& device_;
  Launchers launchers_;
  Problem problem_;
  double eps_ = 0;
  Buffer x_, dy_, weight_, bias_, mean_, rstd_, ordinary_rows_, spare_rows_, workspace_;
  std::vector<Output> outputs_;
};

}  // namespace

std::unique_ptr<Workbench> make_cell_workbench(std::unique_ptr<Platform> platform,
                                               const Device& device, const TableKey& cell,
                                               const Launchers& launchers) {
  return std::make_unique<CellWorkbench>(std::move(platform), device, cell, launchers);
}

}  // namespace hipnorm::tune
