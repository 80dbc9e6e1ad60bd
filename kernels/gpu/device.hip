// A GPU as dispatch sees it, read once from the runtime.
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "csrc/dispatch/gpu_facts.h"
#include "kernels/gpu/platform.h"
#include "kernels/gpu/resident.h"
#include "kernels/launch.h"

namespace hipnorm {
namespace gpu {
namespace {

// More GPUs than any host has.
constexpr int kMaxDevices = 256;

// Its code object tells whether this build runs on the device at all, and for which architecture
// the code that would run was compiled.
struct ProbeArgs {
  int* out;
};
__global__ void __launch_bounds__(64) probe(ProbeArgs args) {
  if (args.out != nullptr) *args.out = kWave;
}

void check(hipError_t error, const std::string& what) {
  if (error == hipSuccess) return;
  static_cast<void>(hipGetLastError());
  throw std::runtime_error(what + ": " + hipGetErrorString(error));
}

// Makes a device current for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    check(hipGetDevice(&before_), "the current GPU is not known");
    if (before_ != index) check(hipSetDevice(index), "GPU " + std::to_string(index));
  }
  ~CurrentDevice() { static_cast<void>(hipSetDevice(before_)); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

// Throws where this build has no code for the device.
hipFuncAttributes attributes_of_probe(const hipDeviceProp_t& properties, const std::string& arch) {
  hipFuncAttributes attributes = {};
  const hipError_t error = hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe));
  if (error == hipSuccess) return attributes;
  static_cast<void>(hipGetLastError());
  if (error != hipErrorNoBinaryForGpu && error != hipErrorInvalidDeviceFunction) {
    check(error, std::string(properties.name) + " (" + arch + ")");
  }
  throw std::invalid_argument(
      "expected a GPU of an architecture that this build of hipnorm has "
      "kernels for (" HIPNORM_GPU_ARCHITECTURES "), but " +
      std::string(properties.name) + " is " + arch);
}

#if defined(__CUDACC__)

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  // What a driver does not know stays 0.
  if (cudaDeviceGetAttribute(&value, which, index) != cudaSuccess) {
    static_cast<void>(hipGetLastError());
  }
  return value;
}

// 90 where the code that would run was compiled for sm_90, or by the driver from PTX of it.
int code_architecture(const hipDeviceProp_t& properties, const std::string& arch) {
  return attributes_of_probe(properties, arch).ptxVersion;
}

void fill(Device& d, const hipDeviceProp_t& properties, int index) {
  d.arch = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
  const int code = code_architecture(properties, d.arch);
  d.lds_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  d.unit_lds_bytes = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  d.registers = properties.regsPerMultiprocessor;
  // The kernels use clusters and the copy engine where they are compiled for sm_90 or later.
  d.bulk_copies = properties.major >= 9 && code >= 90;
  const bool clusters = attribute(cudaDevAttrClusterLaunch, index) != 0;
  d.max_cluster = d.bulk_copies && clusters ? 16 : 1;  // beyond 8 blocks: where the device agrees
  d.cooperative = attribute(cudaDevAttrCooperativeLaunch, index) != 0;
  // Two transfers a clock (H200: 3.2 GHz × 6144 bits, 4.9 TB/s), of which a copy reaches 4.2. Where
  // the driver does not tell the clock: an A100's.
  const double pins = 2e3 * attribute(cudaDevAttrMemoryClockRate, index) *
                      (attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8);
  d.bandwidth = 0.86 * (pins > 0 ? pins : 1.9e12);
  d.launch_seconds = kNvidiaLaunchSeconds;
}

#else

void fill(Device& d, const hipDeviceProp_t& properties, int) {
  d.arch = properties.gcnArchName;
  d.arch = d.arch.substr(0, d.arch.find(':'));  // "gfx942:sramecc+:xnack-"
  static_cast<void>(attributes_of_probe(properties, d.arch));
  d.lds_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlock);
  d.unit_lds_bytes = static_cast<std::int64_t>(properties.maxSharedMemoryPerMultiProcessor);
  set_amd_architecture(d);
  d.cooperative = properties.cooperativeLaunch != 0;
  const AmdArchitecture& architecture = amd_architecture(d.arch);
  d.bandwidth = 1e3 * properties.memoryClockRate * architecture.transfers *
                (properties.memoryBusWidth / 8) * architecture.copy;
  d.launch_seconds = kAmdLaunchSeconds;
}

#endif

Device make_device(int index) {
  int count = 0;
  check(hipGetDeviceCount(&count), "there is no GPU to be used");
  if (count == 0) throw std::runtime_error("there is no GPU to be used: the runtime finds none");
  if (index < 0 || index >= count) {
    throw std::invalid_argument("expected a GPU from 0 to " + std::to_string(count - 1) +
                                ", but got " + std::to_string(index));
  }
  const CurrentDevice current(index);
  hipDeviceProp_t properties = {};
  check(hipGetDeviceProperties(&properties, index), "GPU " + std::to_string(index));
  Device d;
  d.kind = DeviceKind::gpu;
  d.compute_units = properties.multiProcessorCount;
  d.max_vec_bytes = 16;
  d.wave_size = properties.warpSize;
  d.max_threads = properties.maxThreadsPerBlock;
  d.l2_bytes = properties.l2CacheSize;
  d.llc_bytes = d.l2_bytes;
  fill(d, properties, index);
  d.unit_bandwidth = d.bandwidth / (kUnitsThatFillMemory * d.compute_units);
  d.resident_groups = resident_groups;
  return d;
}

struct Slot {
  std::once_flag once;
  std::unique_ptr<const Device> device;
};

}  // namespace
}  // namespace gpu

const Device& gpu_device(int index) {
  // Devices live for ever, so that their addresses may be kept.
  static auto* slots = new std::array<gpu::Slot, gpu::kMaxDevices>;
  if (index < 0 || index >= gpu::kMaxDevices) {
    throw std::invalid_argument("there is no GPU number " + std::to_string(index));
  }
  gpu::Slot& slot = (*slots)[static_cast<std::size_t>(index)];
  // When it throws, the next call tries again.
  std::call_once(slot.once,
                 [&] { slot.device = std::make_unique<const Device>(gpu::make_device(index)); });
  return *slot.device;
}

bool has_gpu_kernels() { return true; }

}  // namespace hipnorm
