// The CPU as dispatch sees it.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "kernels/launch.h"

namespace hipnorm {
namespace {

struct Capability {
  const char* name;
  int vec_bytes;
};
constexpr Capability kCapabilities[] = {{"baseline", 16}, {"avx2", 32}, {"avx512", 64}};

bool processor_has(int vec_bytes) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (vec_bytes == 64) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           processor_has(32);
  }
  if (vec_bytes == 32) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
#endif
  return vec_bytes == 16;
}

Capability choose_capability() {
  const char* wanted = std::getenv("HIPNORM_CPU_CAPABILITY");
  if (wanted != nullptr && *wanted != '\0') {
    for (const Capability& c : kCapabilities) {
      if (c.name != std::string(wanted)) continue;
      if (processor_has(c.vec_bytes)) return c;
      throw std::invalid_argument("HIPNORM_CPU_CAPABILITY=" + std::string(wanted) +
                                  ", but this processor does not have it");
    }
    throw std::invalid_argument(
        "HIPNORM_CPU_CAPABILITY must be baseline, avx2 or avx512, but is '" + std::string(wanted) +
        "'");
  }
  Capability best = kCapabilities[0];
  for (const Capability& c : kCapabilities) {
    if (processor_has(c.vec_bytes)) best = c;
  }
  return best;
}

// Bytes of the data or unified cache of a level, as seen by one core: what Linux reports under
// /sys, where a virtual machine's share is right (sysconf told 320 MB of a 32 MB last level on
// one). 0 where it does not say.
std::int64_t cache_bytes(int level) {
  const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index";
  for (int index = 0; index < 8; ++index) {
    const auto read = [&](const char* name) {
      std::string text;
      std::ifstream(cache + std::to_string(index) + "/" + name) >> text;
      return text;
    };
    if (read("level") != std::to_string(level) || read("type") == "Instruction") continue;
    const std::string size = read("size");  // "1024K"
    std::int64_t bytes = 0;
    std::size_t i = 0;
    for (; i < size.size() && size[i] >= '0' && size[i] <= '9'; ++i) {
      bytes = bytes * 10 + (size[i] - '0');
    }
    const char unit = i < size.size() ? size[i] : '\0';
    return bytes << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
  }
  return 0;
}

Device make_device(int threads) {
  static const Capability capability = choose_capability();  // again where it throws
  Device d;
  d.arch = std::string("cpu-") + capability.name;
  d.kind = DeviceKind::cpu;
  d.compute_units = threads;
  d.max_vec_bytes = capability.vec_bytes;
  // Where unknown: the smallest of any server processor of the last ten years.
  const auto either = [](std::int64_t known, std::int64_t otherwise) {
    return known > 0 ? known : otherwise;
  };
  d.l1_bytes = either(cache_bytes(1), 32 << 10);
  d.l2_bytes = either(cache_bytes(2), 256 << 10);
  d.llc_bytes = either(cache_bytes(3), std::max<std::int64_t>(d.l2_bytes, 8 << 20));
  // One core of a server processor keeps 20–30 GB/s in flight; a socket saturates at about eight of
  // them. Only ratios matter to the choice, and these hold within a factor of two on what was seen.
  d.unit_bandwidth = 25e9;
  d.bandwidth = d.unit_bandwidth * (threads < 8 ? threads : 8);
  // Waking an OpenMP team that is spinning, and its barrier at the end.
  d.launch_seconds = threads == 1 ? 0 : 3e-6;
  return d;
}

}  // namespace

const Device& cpu_device(int threads) {
  // A call asks for the same count as the one before: no lock then. Devices live for ever, so that
  // their addresses may be kept.
  thread_local const Device* last = nullptr;
  if (last != nullptr && last->compute_units == threads) return *last;
  static std::mutex mutex;
  static auto* devices = new std::map<int, std::unique_ptr<const Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Device>& device = (*devices)[threads];
  if (device == nullptr) device = std::make_unique<const Device>(make_device(threads));
  last = device.get();
  return *last;
}

}  // namespace hipnorm
