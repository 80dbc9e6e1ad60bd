// What a GPU's runtime does not tell, or tells in a unit that depends on the architecture: for the
// device at run time (kernels/gpu/device.hip) and for those planned for by their data sheets
// (known_devices.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "csrc/dispatch/device.h"

namespace hipnorm {

// This part of the units fills the memory's bandwidth: 105 of an H200's 132 do (measured).
inline constexpr double kUnitsThatFillMemory = 0.8;

// A kernel behind another takes so much more. NVIDIA: H200, null kernels take 3.6 µs, two 5.4, by
// events. AMD: nobody measured it.
inline constexpr double kNvidiaLaunchSeconds = 1.8e-6, kAmdLaunchSeconds = 3e-6;

struct AmdArchitecture {
  std::string_view name;
  int registers;              // of 32 bits, of one compute unit
  std::int64_t memory_cache;  // bytes of Infinity Cache; 0: none
  int die_units;              // compute units of a die with an L2 of its own; 0: there is one die
  double transfers;  // on each pin, in a cycle of the memory clock that the runtime reports
  double copy;       // of what the pins could carry, reached by a copy
};

// Registers, caches and units: "AMD GPU specifications" (rocm.docs.amd.com, gpu-specs); of RDNA3
// "RDNA3 Instruction Set Architecture" (1536 a lane of 32, 4 SIMDs a pair of units, which the
// runtime counts as one). Transfers: the data sheets' rates over the clocks that amd-smi shows,
// MI250X 3.2 Gb/s at 1600 MHz, MI300X 5.2 at 1300, RX 7900 XTX 20 at 1249; of MI350X 8 Gb/s, at
// half the memory's own clock as on MI300X (assumed). Copies: MI250X and MI300X are reported to
// reach 80 % in BabelStream; the others are guesses.
inline constexpr AmdArchitecture kAmdArchitectures[] = {
    {"gfx90a", 4 * 512 * 64, 0, 0, 2, 0.80},
    {"gfx942", 4 * 512 * 64, std::int64_t{256} << 20, 38, 4, 0.80},
    {"gfx950", 4 * 512 * 64, std::int64_t{256} << 20, 32, 4, 0.80},
    {"gfx1100", 4 * 1536 * 32, std::int64_t{96} << 20, 0, 16, 0.85},
};

// Of an architecture that the list lacks: as gfx90a, which claims least.
constexpr const AmdArchitecture& amd_architecture(std::string_view name) {
  for (const AmdArchitecture& each : kAmdArchitectures) {
    if (each.name == name) return each;
  }
  return kAmdArchitectures[0];
}

// Sets what follows from device.arch, compute_units and l2_bytes.
inline void set_amd_architecture(Device& device) {
  const AmdArchitecture& is = amd_architecture(device.arch);
  device.registers = is.registers;
  device.llc_bytes = std::max(device.l2_bytes, is.memory_cache);
  device.dies = is.die_units > 0 ? std::max(1, device.compute_units / is.die_units) : 1;
}

}  // namespace hipnorm
