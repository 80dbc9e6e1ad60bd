// GPUs by their data sheets: what the tests and `hipnorm-tune` plan for without having one. At run
// time kernels/ asks the driver instead.
#pragma once

#include <span>
#include <string_view>

#include "csrc/dispatch/device.h"

namespace hipnorm {

struct KnownDevice {
  std::string_view name;  // "H200", "MI300X"
  Device device;          // without resident_groups
};

// H200, H100, A100, MI250X (one of its two dies), MI210, MI300X, MI350X, RX 7900 XTX.
std::span<const KnownDevice> known_devices();

// By name; throws std::invalid_argument where there is none.
const Device& known_device(std::string_view name);

}  // namespace hipnorm
