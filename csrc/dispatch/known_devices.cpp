#include "csrc/dispatch/known_devices.h"

#include <array>
#include <stdexcept>

#include "csrc/dispatch/gpu_facts.h"
#include "csrc/dispatch/text.h"

namespace hipnorm {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

// What a data sheet says; bytes, bytes/s.
struct Sheet {
  int units;
  std::int64_t l1, l2;
  double pins;
  std::int64_t lds, unit_lds;
};

KnownDevice known(std::string_view name, std::string_view arch, const Sheet& s) {
  Device d;
  d.arch = arch;
  d.kind = DeviceKind::gpu;
  d.compute_units = s.units;
  d.max_vec_bytes = 16;
  d.l1_bytes = s.l1;
  d.l2_bytes = d.llc_bytes = s.l2;
  d.bandwidth = s.pins;
  d.max_threads = 1024;
  d.lds_bytes = s.lds;
  d.unit_lds_bytes = s.unit_lds;
  d.cooperative = true;
  return {name, d};
}

KnownDevice nvidia(std::string_view name, std::string_view arch, const Sheet& s) {
  KnownDevice known_one = known(name, arch, s);
  Device& d = known_one.device;
  // A copy gets 4241 of 4800 GB/s on an H200, and a kernel behind another takes 1.8 µs more (null
  // kernels 3.6 µs, two 5.4, by events): measured.
  d.bandwidth *= 0.88;
  d.unit_bandwidth = d.bandwidth / (kUnitsThatFillMemory * s.units);
  d.launch_seconds = kNvidiaLaunchSeconds;
  d.wave_size = 32;
  d.registers = 65536;
  // Clusters of 16 where a kernel asks for them.
  d.max_cluster = arch == "sm_90" ? 16 : 1;
  d.bulk_copies = arch == "sm_90";
  return known_one;
}

KnownDevice amd(std::string_view name, std::string_view arch, const Sheet& s) {
  KnownDevice known_one = known(name, arch, s);
  Device& d = known_one.device;
  const AmdArchitecture& rest = amd_architecture(arch);
  d.bandwidth *= rest.copy;
  d.unit_bandwidth = d.bandwidth / (kUnitsThatFillMemory * s.units);
  d.launch_seconds = kAmdLaunchSeconds;
  d.wave_size = arch.starts_with("gfx9") ? 64 : 32;
  set_amd_architecture(d);
  return known_one;
}

// Hopper: "NVIDIA Hopper Tuning Guide" (docs.nvidia.com): 65536 registers, 256 KB of L1 and shared
// memory, 228 KB of the latter, 227 a block; "CUDA C++ Programming Guide", compute capabilities.
// Data sheets: H100 SXM 3.35 TB/s, 132 of 144 units, 50 MB of L2; H200 SXM 4.8 TB/s. (Its driver
// reports 60 MB of L2.)
constexpr Sheet kH200 = {132, 256 * kKiB, 60 * kMiB, 4.8e12, 227 * kKiB, 228 * kKiB};
constexpr Sheet kH100 = {132, 256 * kKiB, 50 * kMiB, 3.35e12, 227 * kKiB, 228 * kKiB};
// "NVIDIA Ampere GPU Architecture Tuning Guide": 164 KB of shared memory, 163 a block, 192 with L1.
// Data sheet, A100 80 GB SXM: 2.039 TB/s, 108 units, 40 MB of L2.
constexpr Sheet kA100 = {108, 192 * kKiB, 40 * kMiB, 2.039e12, 163 * kKiB, 164 * kKiB};
// AMD: "AMD GPU specifications" (rocm.docs.amd.com, gpu-specs): units, LDS, L1, L2; bandwidths from
// the products' data sheets. MI250X: two devices to the runtime, each of 110 units and half of 3.2
// TB/s; MI210: one such die of 104 units.
constexpr Sheet kMI250X = {110, 16 * kKiB, 8 * kMiB, 1.6e12, 64 * kKiB, 64 * kKiB};
constexpr Sheet kMI210 = {104, 16 * kKiB, 8 * kMiB, 1.638e12, 64 * kKiB, 64 * kKiB};
// 8 dies of 4 MB of L2. LDS of MI350X: "CDNA 4" white paper.
constexpr Sheet kMI300X = {304, 32 * kKiB, 32 * kMiB, 5.3e12, 64 * kKiB, 64 * kKiB};
constexpr Sheet kMI350X = {256, 32 * kKiB, 32 * kMiB, 8e12, 160 * kKiB, 160 * kKiB};
// The runtime counts its 96 units in pairs (WGPs), which share 128 KB of LDS, 64 a block.
constexpr Sheet kRX7900XTX = {48, 32 * kKiB, 6 * kMiB, 0.96e12, 64 * kKiB, 128 * kKiB};

}  // namespace

std::span<const KnownDevice> known_devices() {
  static const std::array all = {
      nvidia("H200", "sm_90", kH200),   nvidia("H100", "sm_90", kH100),
      nvidia("A100", "sm_80", kA100),   amd("MI250X", "gfx90a", kMI250X),
      amd("MI210", "gfx90a", kMI210),   amd("MI300X", "gfx942", kMI300X),
      amd("MI350X", "gfx950", kMI350X), amd("RX 7900 XTX", "gfx1100", kRX7900XTX),
  };
  return all;
}

const Device& known_device(std::string_view name) {
  for (const KnownDevice& each : known_devices()) {
    if (each.name == name) return each.device;
  }
  throw std::invalid_argument(concat("hipnorm: there is no data sheet of '", name, "'"));
}

}  // namespace hipnorm
