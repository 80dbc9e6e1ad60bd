// The workbench, on whatever platform.
#pragma once

#include <memory>

#include "bench/tune/platform.h"
#include "bench/tune/workbench.h"
#include "kernels/launch.h"

namespace hipnorm::tune {

// What is run: the library's kernels, or in a test some that are wrong.
struct Launchers {
  Error (*forward)(const ForwardArgs&, const Launch&) = launch_forward;
  Error (*backward)(const BackwardArgs&, const Launch&) = launch_backward;
};

// `device` must outlive the workbench.
std::unique_ptr<Workbench> make_cell_workbench(std::unique_ptr<Platform> platform,
                                               const Device& device, const TableKey& cell,
                                               const Launchers& launchers = {});

}  // namespace hipnorm::tune
