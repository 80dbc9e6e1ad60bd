#include "bench/tune/workbench.h"

#include <stdexcept>

#include "bench/tune/cpu_workbench.h"
#include "csrc/dispatch/text.h"

namespace hipnorm::tune {

Machine machine(const std::string& device) {
  if (device == "cpu") return cpu_machine();
  throw std::invalid_argument(
      concat("--device ", device, ": this build of hipnorm-tune measures only: cpu"));
}

std::unique_ptr<Workbench> make_workbench(const Machine& machine, const TableKey& cell) {
  return make_cpu_workbench(machine, cell);
}

}  // namespace hipnorm::tune
