// A GPU, for a workbench.
#pragma once

#include "bench/tune/platform.h"
#include "bench/tune/workbench.h"

namespace hipnorm::tune {

// Makes GPU number `index` the calling thread's.
Machine gpu_machine(int index);
std::unique_ptr<Platform> gpu_platform(const Machine& machine);

}  // namespace hipnorm::tune
