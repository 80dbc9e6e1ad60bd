#include "bench/tune/gpu_workbench.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/tune/inputs.h"
#include "csrc/dispatch/text.h"
#include "kernels/gpu/packet.h"
#include "kernels/launch.h"
#include "tests/reference/bounds.h"

namespace hipnorm::tune {
namespace {

using gpu::Grid;
using gpu::launch_kernel;

void check_call(hipError_t error, const char* what) {
  if (error != hipSuccess) throw std::runtime_error(concat(what, ": ", hipGetErrorString(error)));
}

// Device memory between guards, exact to the byte. 0xff everywhere is NaN in every format.
class Guarded {
 public:
  static constexpr std::size_t kGuard = 4096;
  explicit Guarded(std::size_t bytes = 0) : bytes_(bytes) {
    check_call(hipMalloc(&block_, bytes + 2 * kGuard), "no device memory");
    check_call(hipMemset(block_, 0xff, bytes + 2 * kGuard), "filling device memory");
  }
  explicit Guarded(const std::vector<char>& host) : Guarded(host.size()) {
    if (host.empty()) return;
    check_call(hipMemcpy(data(), host.data(), host.size(), hipMemcpyHostToDevice), "copying");
  }
  ~Guarded() { static_cast<void>(hipFree(block_)); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* data() const { return static_cast<char*>(block_) + kGuard; }
  char* data_or_null() const { return bytes_ == 0 ? nullptr : data(); }
  std::size_t bytes() const { return bytes_; }
  void fill() { check_call(hipMemset(data(), 0xff, bytes_), "filling device memory"); }

 private:
  std::size_t bytes_;
  void* block_ = nullptr;
};

// ---- Judging where the results lie --------------------------------------------------------------
struct CompareArgs {
  const void* got;
  const void* low;
  const void* high;
  std::int64_t count;
  bool must_be_nan;
  unsigned long long* found;  // [0]: wrong elements; [1]: the first of them
};

template <class T>
__global__ void __launch_bounds__(256) compare(CompareArgs args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    const float got = gpu::to_accumulate(static_cast<const T*>(args.got)[i]);
    const float low = gpu::to_accumulate(static_cast<const T*>(args.low)[i]);
    const float high = gpu::to_accumulate(static_cast<const T*>(args.high)[i]);
    const bool finite = got - got == 0;
    const bool right = low != low   ? (args.must_be_nan ? got != got : !finite)
                       : low > high ? !finite
                                    : low <= got && got <= high;
    if (right) continue;
    atomicAdd(args.found, 1ull);
    atomicMin(args.found + 1, static_cast<unsigned long long>(i));
  }
}

struct SameArgs {
  const std::uint8_t* a;
  const std::uint8_t* b;  // null: every byte must be 0xff
  std::int64_t count;
  unsigned long long* found;
};

__global__ void __launch_bounds__(256) differing(SameArgs args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    if (args.a[i] == (args.b == nullptr ? 0xff : args.b[i])) continue;
    atomicAdd(args.found, 1ull);
    atomicMin(args.found + 1, static_cast<unsigned long long>(i));
  }
}

// Reads a buffer: evicts what a write of it left dirty in the caches.
struct ReadArgs {
  const std::uint32_t* data;
  std::int64_t count;
  std::uint32_t* sink;
};
__global__ void __launch_bounds__(256) read_all(ReadArgs args) {
  std::uint32_t sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    sum += args.data[i];
  }
  if (sum == 0x12345678u) *args.sink = sum;
}

constexpr std::int64_t kBlocks = 2048;

// One output: where it lies, a copy of the first of two runs, and what is allowed.
struct Output {
  Output(const char* called, const reference::Bounds& bounds)
      : name(called),
        dtype(bounds.dtype),
        must_be_nan(bounds.nan == reference::Bounds::Nan::must_be_nan),
        memory(bounds.low.size()),
        first(bounds.low.size()),
        low(bounds.low),
        high(bounds.high) {}
  const char* name;
  DType dtype;
  bool must_be_nan;
  Guarded memory, first, low, high;
  std::int64_t count() const { return static_cast<std::int64_t>(memory.bytes()) / size_of(dtype); }
};

class GpuWorkbench final : public Workbench {
 public:
  GpuWorkbench(const Machine& machine, const TableKey& cell)
      : device_(*machine.device), found_(2 * sizeof(unsigned long long)) {
    if (cell.x == DType::f64) throw std::runtime_error("f64 is not swept on a GPU");
    const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const Inputs inputs(cell, threads);
    problem_ = inputs.problem;
    eps_ = inputs.eps;
    const auto upload = [](const std::vector<char>& host) {
      return std::make_unique<Guarded>(host);
    };
    x_ = upload(inputs.x);
    ordinary_rows_ = upload(inputs.ordinary_rows);
    spare_rows_ = upload(inputs.ordinary_rows);
    dy_ = upload(inputs.dy);
    weight_ = upload(inputs.weight);
    bias_ = upload(inputs.bias);
    mean_ = upload(inputs.mean);
    rstd_ = upload(inputs.rstd);
    if (problem_.is_backward()) {
      auto bounds = reference::backward_bounds(inputs.backward(), problem_.weight, threads);
      const auto add = [&](const char* name, bool wanted, reference::Bounds& b) {
        if (!wanted) b.low = b.high = {};
        outputs_.push_back(std::make_unique<Output>(name, b));
      };
      add("dX", problem_.grads.dx, bounds.dx);
      add("dW", problem_.grads.dweight, bounds.dweight);
      add("dB", problem_.grads.dbias, bounds.dbias);
    } else {
      const auto bounds = reference::forward_bounds(inputs.forward(), threads);
      outputs_.push_back(std::make_unique<Output>("y", bounds.y));
      outputs_.push_back(std::make_unique<Output>("mean", bounds.mean));
      outputs_.push_back(std::make_unique<Output>("rstd", bounds.rstd));
    }
    const std::int64_t caches = std::max(device_.l2_bytes, device_.llc_bytes);
    flush_ = std::make_unique<Guarded>(
        static_cast<std::size_t>(std::max<std::int64_t>(4 * caches, std::int64_t{256} << 20)));
    check_call(hipEventCreate(&begin_), "event");
    check_call(hipEventCreate(&end_), "event");
  }
  ~GpuWorkbench() override {
    static_cast<void>(hipEventDestroy(begin_));
    static_cast<void>(hipEventDestroy(end_));
  }

  Finding check(const Config& config) override {
    for (auto& output : outputs_) output->memory.fill();
    run(config);
    check_call(hipDeviceSynchronize(), "the kernel");
    for (auto& output : outputs_) {
      check_call(hipMemcpy(output->first.data(), output->memory.data(), output->memory.bytes(),
                           hipMemcpyDeviceToDevice),
                 "copying");
      output->memory.fill();
    }
    run(config);
    check_call(hipDeviceSynchronize(), "the kernel");
    for (auto& o : outputs_) {
      const char* begin = o->memory.data() - Guarded::kGuard;
      const char* end = o->memory.data() + o->memory.bytes();
      if (differ(begin, nullptr, Guarded::kGuard)[0] + differ(end, nullptr, Guarded::kGuard)[0] >
          0) {
        return {.reason = concat("wrote outside of ", o->name)};
      }
      const auto differs = differ(o->first.data(), o->memory.data(), o->memory.bytes());
      if (differs[0] != 0) {
        return {.reason = concat(o->name, " differs between two runs in ", differs[0], " bytes")};
      }
    }
    Finding finding{.right = true, .worst = 0, .reason = ""};
    for (auto& o : outputs_) {
      const auto wrong = judge(*o);
      if (wrong[0] == 0) continue;
      finding.right = false;
      finding.reason += concat(finding.reason.empty() ? "" : "; ", o->name, ": ", wrong[0],
                               " elements wrong, the first at ", wrong[1]);
    }
    return finding;
  }

  std::vector<std::vector<double>> time(std::span<const Config> configs, int rounds) override {
    std::vector<std::vector<double>> samples(configs.size());
    swap_ordinary_rows();
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < configs.size(); ++i) {
        const std::size_t at = (static_cast<std::size_t>(round) + i) % configs.size();
        flush();
        check_call(hipEventRecord(begin_, nullptr), "event");
        run(configs[at]);
        check_call(hipEventRecord(end_, nullptr), "event");
        check_call(hipEventSynchronize(end_), "the kernel");
        float milliseconds = 0;
        check_call(hipEventElapsedTime(&milliseconds, begin_, end_), "event");
        samples[at].push_back(milliseconds * 1e-3);
      }
    }
    swap_ordinary_rows();
    return samples;
  }

 private:
  void run(const Config& config) {
    const Plan sizes = plan(config, problem_, device_);
    if (!workspace_ || workspace_->bytes() < static_cast<std::size_t>(sizes.workspace_bytes)) {
      check_call(hipDeviceSynchronize(), "the kernel");
      workspace_ = std::make_unique<Guarded>(static_cast<std::size_t>(sizes.workspace_bytes));
    }
    const Launch launch{.problem = problem_, .device = device_, .config = config, .plan = sizes};
    const Error error = problem_.is_backward()
                            ? launch_backward({.dy = dy_->data(),
                                               .dy_stride = problem_.cols,
                                               .x = x_->data(),
                                               .x_stride = problem_.cols,
                                               .mean = mean_->data(),
                                               .rstd = rstd_->data(),
                                               .weight = weight_->data_or_null(),
                                               .dx = outputs_[0]->memory.data_or_null(),
                                               .dweight = outputs_[1]->memory.data_or_null(),
                                               .dbias = outputs_[2]->memory.data_or_null(),
                                               .workspace = workspace_->data()},
                                              launch)
                            : launch_forward({.x = x_->data(),
                                              .x_stride = problem_.cols,
                                              .weight = weight_->data_or_null(),
                                              .bias = bias_->data_or_null(),
                                              .eps = eps_,
                                              .y = outputs_[0]->memory.data(),
                                              .mean = outputs_[1]->memory.data(),
                                              .rstd = outputs_[2]->memory.data(),
                                              .workspace = workspace_->data()},
                                             launch);
    if (error) throw std::runtime_error(*error);
  }

  // Inputs::swap_ordinary_rows, on the device.
  void swap_ordinary_rows() {
    const std::size_t bytes = ordinary_rows_->bytes();
    if (bytes == 0) return;
    char* rows = x_->data() + 3 * problem_.cols * size_of(problem_.x);
    const auto copy = [&](char* to, const char* from) {
      check_call(hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice), "copying");
    };
    copy(spare_rows_->data(), rows);
    copy(rows, ordinary_rows_->data());
    std::swap(ordinary_rows_, spare_rows_);
  }

  std::vector<unsigned long long> counted(hipError_t launched) {
    check_call(launched, "the judging kernel");
    std::vector<unsigned long long> result(2);
    check_call(hipMemcpy(result.data(), found_.data(), found_.bytes(), hipMemcpyDeviceToHost),
               "copying");
    return result;
  }
  unsigned long long* cleared() {
    check_call(hipMemset(found_.data(), 0, sizeof(unsigned long long)), "clearing");
    check_call(
        hipMemset(found_.data() + sizeof(unsigned long long), 0xff, sizeof(unsigned long long)),
        "clearing");
    return reinterpret_cast<unsigned long long*>(found_.data());
  }

  std::vector<unsigned long long> differ(const char* a, const char* b, std::size_t bytes) {
    const SameArgs args{reinterpret_cast<const std::uint8_t*>(a),
                        reinterpret_cast<const std::uint8_t*>(b), static_cast<std::int64_t>(bytes),
                        cleared()};
    return counted(launch_kernel(differing, Grid{.blocks = kBlocks, .threads = 256}, args));
  }

  std::vector<unsigned long long> judge(const Output& o) {
    const CompareArgs args{o.memory.data(), o.low.data(),  o.high.data(),
                           o.count(),       o.must_be_nan, cleared()};
    const Grid grid{.blocks = kBlocks, .threads = 256};
    switch (o.dtype) {
      case DType::f16: return counted(launch_kernel(compare<gpu::f16>, grid, args));
      case DType::bf16: return counted(launch_kernel(compare<gpu::bf16>, grid, args));
      default: return counted(launch_kernel(compare<float>, grid, args));
    }
  }

  // A write, then a read of four times the caches: no dirty line is left to be written back inside
  // the timed region.
  void flush() {
    check_call(hipMemsetAsync(flush_->data(), 0, flush_->bytes(), nullptr), "flushing");
    const ReadArgs args{reinterpret_cast<const std::uint32_t*>(flush_->data()),
                        static_cast<std::int64_t>(flush_->bytes() / 4),
                        reinterpret_cast<std::uint32_t*>(found_.data())};
    check_call(launch_kernel(read_all, Grid{.blocks = kBlocks, .threads = 256}, args), "flushing");
  }

  const Device& device_;
  Problem problem_;
  double eps_ = 0;
  std::unique_ptr<Guarded> ordinary_rows_, spare_rows_;
  std::unique_ptr<Guarded> x_, dy_, weight_, bias_, mean_, rstd_, workspace_, flush_;
  std::vector<std::unique_ptr<Output>> outputs_;
  Guarded found_;
  hipEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

Machine gpu_machine(int index) {
  static_cast<void>(gpu_device(index));  // where there is none, it says so
  check_call(hipSetDevice(index), "choosing the GPU");
  hipDeviceProp_t properties = {};
  check_call(hipGetDeviceProperties(&properties, index), "asking the GPU");
  int driver = 0, runtime = 0;
  check_call(hipDriverGetVersion(&driver), "asking the driver");
  check_call(hipRuntimeGetVersion(&runtime), "asking the runtime");
  return {.device = &gpu_device(index),
          .name = properties.name,
          .driver = concat("driver ", driver, " runtime ", runtime)};
}

std::unique_ptr<Workbench> make_gpu_workbench(const Machine& machine, const TableKey& cell) {
  return std::make_unique<GpuWorkbench>(machine, cell);
}

}  // namespace hipnorm::tune
