// Sentences about faults.
#include <cstring>
#include <string>
#include <string_view>

#include "tests/emulator/machine.h"

namespace hipnorm::emulator {

const char* name_of(At at) {
  switch (at) {
    case At::nothing: return "nothing";
    case At::shuffle: return "__shfl";
    case At::shuffle_xor: return "__shfl_xor";
    case At::wave_sync: return "wave_sync";
    case At::syncthreads: return "__syncthreads";
    case At::barrier_wait: return "barrier_wait";
    case At::cluster_wait: return "cluster_wait";
    case At::agent_load: return "agent_load";
    case At::exited: return "its end";
  }
  return "?";
}

std::string at_site(Site site) {
  if (site.line() == 0) return "";
  std::string_view file = site.file_name();
  file.remove_prefix(file.rfind('/') + 1);
  return " (" + std::string(file) + ":" + std::to_string(site.line()) + ")";
}

std::string name_of_kernel(const Call& call) {
  std::string_view type = call.args_type;
  const std::size_t start = type.find("Args = ");
  if (start != type.npos) {
    type.remove_prefix(start + std::strlen("Args = "));
    type = type.substr(0, type.find_first_of(";]"));
  }
  return "kernel of " + std::string(type);
}

void Machine::report_deadlock() {
  for (const Fiber& fiber : fibers) {
    if (fiber.at == At::exited) continue;
    fault(fiber, fiber.site, std::string("deadlock: waits at ") + name_of(fiber.at));
  }
  __builtin_unreachable();
}

}  // namespace hipnorm::emulator
