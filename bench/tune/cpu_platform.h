// The workbench on this machine's processor.
#pragma once

#include "bench/tune/workbench.h"

namespace hipnorm::tune {

Machine cpu_machine();
std::unique_ptr<Workbench> make_cpu_workbench(const Machine& machine, const TableKey& cell);

}  // namespace hipnorm::tune
