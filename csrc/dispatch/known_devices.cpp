#include "csrc/dispatch/known_devices.h"

#include <array>
#include <stdexcept>

#include "csrc/dispatch/text.h"

namespace hipnorm {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

// A copy gets this much of what the memory's pins could carry: 4241 of 4800 GB/s on an H200
// (measured), 80 % on CDNA (as MI250X and MI300X are reported to reach in BabelStream).
constexpr double kCopyNvidia = 0.88, kCopyAmd = 0.80;

struct Sheet {
  int units;
  std::int64_t l1, l2, llc;
  double pins;  // bytes/s
  double copy;
  double launch;  // seconds
  int wave;
  std::int64_t lds, unit_lds;
  int registers;
  int cluster;
  int dies = 1;
};

KnownDevice known(std::string_view name, std::string_view arch, const Sheet& s) {
  Device d;
  d.arch = arch;
  d.kind = DeviceKind::gpu;
  d.compute_units = s.units;
  d.max_vec_bytes = 16;
  d.l1_bytes = s.l1;
  d.l2_bytes = s.l2;
  d.llc_bytes = s.llc;
  d.bandwidth = s.pins * s.copy;
  // Eight tenths of the units fill the memory's bandwidth: 105 of an H200's 132 do (measured).
  d.unit_bandwidth = d.bandwidth / (0.8 * s.units);
  d.launch_seconds = s.launch;
  d.wave_size = s.wave;
  d.max_threads = 1024;
  d.lds_bytes = s.lds;
  d.unit_lds_bytes = s.unit_lds;
  d.registers = s.registers;
  d.max_cluster = s.cluster;
  d.bulk_copies = s.cluster > 1;
  d.cooperative = true;
  d.dies = s.dies;
  return {name, d};
}

// A kernel behind another takes 1.8 µs more on an H200 (null kernels 3.6 µs, two 5.4, by events);
// about 3 µs is assumed on AMD.
constexpr double kLaunchNvidia = 1.8e-6, kLaunchAmd = 3e-6;

// Hopper: "NVIDIA Hopper Tuning Guide" (docs.nvidia.com): 65536 registers, 256 KB of L1 and shared
// memory, 228 KB of the latter, 227 a block; "CUDA C++ Programming Guide", compute capabilities.
// Clusters of 16 where a kernel asks for them. Data sheets: H100 SXM 3.35 TB/s, 132 of 144 units,
// 50 MB of L2; H200 SXM 4.8 TB/s. (Its driver reports 60 MB of L2.)
constexpr Sheet kH200 = {132,           256 * kKiB, 60 * kMiB,  60 * kMiB,  4.8e12, kCopyNvidia,
                         kLaunchNvidia, 32,         227 * kKiB, 228 * kKiB, 65536,  16};
constexpr Sheet kH100 = {132,           256 * kKiB, 50 * kMiB,  50 * kMiB,  3.35e12, kCopyNvidia,
                         kLaunchNvidia, 32,         227 * kKiB, 228 * kKiB, 65536,   16};
// "NVIDIA Ampere GPU Architecture Tuning Guide": 164 KB of shared memory, 163 a block, 192 with L1.
// Data sheet, A100 80 GB SXM: 2.039 TB/s, 108 units, 40 MB of L2.
constexpr Sheet kA100 = {108,           192 * kKiB, 40 * kMiB,  40 * kMiB,  2.039e12, kCopyNvidia,
                         kLaunchNvidia, 32,         163 * kKiB, 164 * kKiB, 65536,    1};
// AMD: "AMD GPU specifications" (rocm.docs.amd.com, gpu-specs): units, LDS, VGPR file (512 KB:
// 131072 registers), L1, L2, L3; bandwidths from the products' data sheets. MI250X: two devices to
// the runtime, each of 110 units and half of 3.2 TB/s. No L3.
constexpr Sheet kMI250X = {110,        16 * kKiB, 8 * kMiB,  8 * kMiB,  1.6e12, kCopyAmd,
                           kLaunchAmd, 64,        64 * kKiB, 64 * kKiB, 131072, 1};
// MI210: one such die of 104 units.
constexpr Sheet kMI210 = {104,        16 * kKiB, 8 * kMiB,  8 * kMiB,  1.638e12, kCopyAmd,
                          kLaunchAmd, 64,        64 * kKiB, 64 * kKiB, 131072,   1};
// MI300X: 8 dies of 38 units and 4 MB of L2; 256 MB of Infinity Cache at the memory; 5.3 TB/s.
constexpr Sheet kMI300X = {304, 32 * kKiB, 32 * kMiB, 256 * kMiB, 5.3e12, kCopyAmd, kLaunchAmd,
                           64,  64 * kKiB, 64 * kKiB, 131072,     1,      8};
// MI350X: 8 dies of 32 units, 160 KB of LDS a unit (CDNA 4 white paper); 8 TB/s.
constexpr Sheet kMI350X = {256, 32 * kKiB,  32 * kMiB,  256 * kMiB, 8e12, kCopyAmd, kLaunchAmd,
                           64,  160 * kKiB, 160 * kKiB, 131072,     1,    8};
// RX 7900 XTX. The runtime counts its 96 units in pairs (WGPs), which share 128 KB of LDS, 64 a
// block, and have 4 SIMDs of 192 KB of registers ("RDNA3 Instruction Set Architecture", 1536
// registers a lane of 32). 6 MB of L2, 96 MB of Infinity Cache, 960 GB/s.
constexpr Sheet kRX7900XTX = {48,         32 * kKiB, 6 * kMiB,  96 * kMiB,  0.96e12, 0.85,
                              kLaunchAmd, 32,        64 * kKiB, 128 * kKiB, 196608,  1};

}  // namespace

std::span<const KnownDevice> known_devices() {
  static const std::array all = {
      known("H200", "sm_90", kH200),      known("H100", "sm_90", kH100),
      known("A100", "sm_80", kA100),      known("MI250X", "gfx90a", kMI250X),
      known("MI210", "gfx90a", kMI210),   known("MI300X", "gfx942", kMI300X),
      known("MI350X", "gfx950", kMI350X), known("RX 7900 XTX", "gfx1100", kRX7900XTX),
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
