// One cell laid out on a device: inputs, the truth, guarded outputs; judges and times configs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/dispatch/table.h"

namespace hipnorm::tune {

// What is measured on.
struct Machine {
  const Device* device = nullptr;
  std::string name;    // "NVIDIA H200", the processor's model
  std::string driver;  // of the driver and runtime; empty for a CPU
};

struct Finding {
  bool right = false;
  // Of the worst element: its distance from the middle of what is allowed, 1 at the edge
  // (allowed.h); f64: error ÷ tolerance.
  double worst = 0;
  std::string reason;  // where not right
};

class Workbench {
 public:
  virtual ~Workbench() = default;

  // Runs the config twice on NaN-filled outputs between guards, with a NaN-filled workspace, and
  // judges it: against the fp64 truth, formed once (rows of large mean, a constant row, rows with
  // Inf and NaN), bit for bit against its second run, nothing written outside. Throws
  // std::runtime_error where the launch fails.
  virtual Finding check(const Config& config) = 0;

  // Seconds of every call, [config][round]: caches cold, the configs in turns whose order rotates,
  // no Inf or NaN in the rows (kernels may take their time over what no training run survives).
  // No rounds: nothing runs. The same config may be given twice: the gap between twins is the
  // noise.
  virtual std::vector<std::vector<double>> time(std::span<const Config> configs, int rounds) = 0;
};

// Throws std::invalid_argument when this build or this machine lacks the device.
Machine machine(const std::string& device);  // "cpu", "gpu" or "gpu:1"
// Throws std::bad_alloc or std::runtime_error when the cell does not fit.
std::unique_ptr<Workbench> make_workbench(const Machine& machine, const TableKey& cell);

}  // namespace hipnorm::tune
