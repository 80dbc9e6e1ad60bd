#include "bench/tune/workbench.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

#include "bench/tune/cell_workbench.h"
#include "bench/tune/cpu_platform.h"
#include "csrc/dispatch/text.h"
#if defined(HIPNORM_TUNE_GPU)
#include "bench/tune/gpu_platform.h"
#endif

namespace hipnorm::tune {

Machine machine(const std::string& device) {
  if (device == "cpu") return cpu_machine();
  constexpr std::string_view kGpu = "gpu";
  std::string_view rest = device;
  if (rest.starts_with(kGpu)) {
    rest.remove_prefix(kGpu.size());
    int index = 0;
    const auto [end, error] =
        rest.empty() ? std::from_chars_result{rest.data(), std::errc()}
                     : std::from_chars(rest.data() + 1, rest.data() + rest.size(), index);
    if (error == std::errc() && end == rest.data() + rest.size() &&
        (rest.empty() || rest.front() == ':')) {
#if defined(HIPNORM_TUNE_GPU)
      return gpu_machine(index);
#else
      throw std::invalid_argument(concat(
          "--device ", device, ": this hipnorm-tune was built without GPU kernels (HIPNORM_GPU)"));
#endif
    }
  }
  throw std::invalid_argument(concat("--device ", device, ": expected cpu, gpu or gpu:INDEX"));
}

std::unique_ptr<Workbench> make_workbench(const Machine& machine, const TableKey& cell) {
#if defined(HIPNORM_TUNE_GPU)
  if (machine.device->kind == DeviceKind::gpu) {
    return make_cell_workbench(gpu_platform(machine), *machine.device, cell);
  }
#endif
  return make_cell_workbench(cpu_platform(), *machine.device, cell);
}

}  // namespace hipnorm::tune
