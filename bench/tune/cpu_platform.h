// This machine's processor, for a workbench.
#pragma once

#include "bench/tune/platform.h"
#include "bench/tune/workbench.h"

namespace hipnorm::tune {

Machine cpu_machine();
std::unique_ptr<Platform> cpu_platform();

}  // namespace hipnorm::tune
