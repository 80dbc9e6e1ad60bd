// The workbench on a GPU. No torch: HIP's runtime alone.
#pragma once

#include "bench/tune/workbench.h"

namespace hipnorm::tune {

// Throws std::invalid_argument or std::runtime_error where there is no such GPU.
Machine gpu_machine(int index);
std::unique_ptr<Workbench> make_gpu_workbench(const Machine& machine, const TableKey& cell);

}  // namespace hipnorm::tune
