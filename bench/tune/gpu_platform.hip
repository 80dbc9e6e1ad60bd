#include "bench/tune/gpu_platform.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/tune/allowed.h"
#include "csrc/dispatch/text.h"
#include "kernels/gpu/packet.h"
#include "kernels/launch.h"

namespace hipnorm::tune {
namespace {

using gpu::Grid;
using gpu::launch_kernel;

void check_call(hipError_t error, const char* what) {
  if (error != hipSuccess) throw std::runtime_error(concat(what, ": ", hipGetErrorString(error)));
}

// ---- Judging where the results lie --------------------------------------------------------------
// What the judging kernels find; `worst` as bits of a float that is not negative, which are ordered
// as unsigned integers are.
struct Found {
  unsigned long long count;
  unsigned long long first;
  unsigned int worst;
};

struct CompareArgs {
  const void* got;
  const void* low;
  const void* high;
  std::int64_t count;
  bool must_be_nan;
  Found* found;
};

template <class T>
__global__ void __launch_bounds__(256) compare(CompareArgs args) {
  float worst = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    const float got = gpu::to_accumulate(static_cast<const T*>(args.got)[i]);
    const float low = gpu::to_accumulate(static_cast<const T*>(args.low)[i]);
    const float high = gpu::to_accumulate(static_cast<const T*>(args.high)[i]);
    const float found = misfit(got, low, high, args.must_be_nan);
    worst = found > worst ? found : worst;
    if (found <= 1) continue;
    atomicAdd(&args.found->count, 1ull);
    atomicMin(&args.found->first, static_cast<unsigned long long>(i));
  }
  atomicMax(&args.found->worst, __float_as_uint(worst));
}

struct SameArgs {
  const std::uint8_t* a;
  const std::uint8_t* b;  // null: every byte must be 0xff
  std::int64_t count;
  Found* found;
};

__global__ void __launch_bounds__(256) differing_bytes(SameArgs args) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.count; i += step) {
    if (args.a[i] == (args.b == nullptr ? 0xff : args.b[i])) continue;
    atomicAdd(&args.found->count, 1ull);
    atomicMin(&args.found->first, static_cast<unsigned long long>(i));
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

class GpuPlatform final : public Platform {
 public:
  explicit GpuPlatform(const Device& device)
      : threads_(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        flush_bytes_(static_cast<std::size_t>(std::max<std::int64_t>(
            4 * std::max(device.l2_bytes, device.llc_bytes), std::int64_t{256} << 20))) {
    flush_ = allocate(flush_bytes_);
    found_ = reinterpret_cast<Found*>(allocate(sizeof(Found)));
    check_call(hipEventCreate(&begin_), "event");
    check_call(hipEventCreate(&end_), "event");
  }
  ~GpuPlatform() override {
    static_cast<void>(hipEventDestroy(begin_));
    static_cast<void>(hipEventDestroy(end_));
    release(reinterpret_cast<char*>(found_));
    release(flush_);
  }
  GpuPlatform(const GpuPlatform&) = delete;
  GpuPlatform& operator=(const GpuPlatform&) = delete;

  char* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check_call(hipMalloc(&memory, bytes), "no device memory");
    return static_cast<char*>(memory);
  }
  void release(char* memory) override { static_cast<void>(hipFree(memory)); }
  void fill(char* to, std::size_t bytes) override {
    if (bytes > 0) check_call(hipMemset(to, 0xff, bytes), "filling device memory");
  }
  void copy(char* to, const char* from, std::size_t bytes) override {
    if (bytes > 0) check_call(hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice), "copying");
  }
  void upload(char* to, const char* host, std::size_t bytes) override {
    if (bytes > 0) check_call(hipMemcpy(to, host, bytes, hipMemcpyHostToDevice), "copying");
  }
  void wait() override { check_call(hipDeviceSynchronize(), "the kernel"); }

  Faults differing(const char* a, const char* b, std::size_t bytes) override {
    clear();
    const SameArgs args{reinterpret_cast<const std::uint8_t*>(a),
                        reinterpret_cast<const std::uint8_t*>(b), static_cast<std::int64_t>(bytes),
                        found_};
    return found(launch_kernel(differing_bytes, kGrid, args));
  }

  Faults judge(const Judged& o) override {
    clear();
    const CompareArgs args{o.got, o.low, o.high, o.count, o.must_be_nan, found_};
    switch (o.dtype) {
      case DType::f16: return found(launch_kernel(compare<gpu::f16>, kGrid, args));
      case DType::bf16: return found(launch_kernel(compare<gpu::bf16>, kGrid, args));
      default: return found(launch_kernel(compare<float>, kGrid, args));
    }
  }

  double time(const std::function<void()>& call) override {
    flush();
    check_call(hipEventRecord(begin_, nullptr), "event");
    call();
    check_call(hipEventRecord(end_, nullptr), "event");
    check_call(hipEventSynchronize(end_), "the kernel");
    float milliseconds = 0;
    check_call(hipEventElapsedTime(&milliseconds, begin_, end_), "event");
    return milliseconds * 1e-3;
  }

  int threads() const override { return threads_; }

 private:
  static constexpr Grid kGrid{.blocks = 2048, .threads = 256};

  void clear() {
    const Found none{.count = 0, .first = ~0ull, .worst = 0};
    check_call(hipMemcpy(found_, &none, sizeof none, hipMemcpyHostToDevice), "clearing");
  }
  Faults found(hipError_t launched) {
    check_call(launched, "the judging kernel");
    Found result = {};
    check_call(hipMemcpy(&result, found_, sizeof result, hipMemcpyDeviceToHost), "copying");
    return {
        .count = result.count, .first = result.first, .worst = std::bit_cast<float>(result.worst)};
  }

  // A write, then a read of four times the caches: no dirty line is left to be written back inside
  // the timed region.
  void flush() {
    check_call(hipMemsetAsync(flush_, 0, flush_bytes_, nullptr), "flushing");
    const ReadArgs args{reinterpret_cast<const std::uint32_t*>(flush_),
                        static_cast<std::int64_t>(flush_bytes_ / 4),
                        reinterpret_cast<std::uint32_t*>(found_)};
    check_call(launch_kernel(read_all, kGrid, args), "flushing");
  }

  int threads_;
  std::size_t flush_bytes_;
  char* flush_ = nullptr;
  Found* found_ = nullptr;
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

std::unique_ptr<Platform> gpu_platform(const Machine& machine) {
  return std::make_unique<GpuPlatform>(*machine.device);
}

}  // namespace hipnorm::tune
