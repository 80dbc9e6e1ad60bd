// The GPU kernels in the emulator. Its device is small, so that persistent kernels take several
// steps on little data.
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "csrc/dispatch/text.h"
#include "kernels/gpu/resident.h"
#include "tests/emulator/schedule.h"
#include "tests/kernels/backend.h"

namespace hipnorm::testing {
namespace {

constexpr int kWave = HIPNORM_EMULATED_WAVE;

// Which of the GPUs with waves of this size: HIPNORM_EMULATED_DEVICE.
std::string_view wanted() {
  const char* name = std::getenv("HIPNORM_EMULATED_DEVICE");
  if (name == nullptr || *name == '\0') return kWave == 32 ? "sm_90" : "gfx942";
  for (const std::string_view known : {"gfx90a", "gfx942", "gfx950", "gfx1100", "sm_90"}) {
    if (known == name && (known == "gfx1100" || known == "sm_90") == (kWave == 32)) return known;
  }
  throw std::invalid_argument(concat("HIPNORM_EMULATED_DEVICE=", name,
                                     ", but expected a GPU with waves of ", kWave, " lanes"));
}

Device make_device() {
  Device d;
  d.kind = DeviceKind::gpu;
  d.compute_units = 3;
  d.max_vec_bytes = 16;
  d.l2_bytes = d.llc_bytes = std::int64_t{50} << 20;
  d.bandwidth = 4e12;
  d.unit_bandwidth = 4e10;
  d.launch_seconds = 2e-6;
  d.wave_size = kWave;
  d.max_threads = 1024;
  const std::string_view name = wanted();
  d.arch = concat("emulated-", name);
  if (name == "sm_90") {
    d.lds_bytes = 227 << 10;
    d.unit_lds_bytes = 228 << 10;
    d.registers = 65536;
    d.max_cluster = 8;
    d.bulk_copies = true;
  } else {
    d.registers = name == "gfx1100" ? 196608 : 131072;
    d.lds_bytes = d.unit_lds_bytes = (name == "gfx950" ? 160 : 64) << 10;
    d.dies = name == "gfx942" || name == "gfx950" ? 2 : 1;
    // With a cache at the memory so small that it takes a few rows of the tests' shapes:
    // backward_sums_first goes by panels.
    if (name != "gfx90a") {
      d.l2_bytes = 4 << 10;
      d.llc_bytes = 16 << 10;
    }
  }
  d.cooperative = true;
  d.resident_groups = gpu::resident_groups;
  return d;
}

// Every launch has a seed of its own, fixed by the order of the launches in this process.
emulator::Schedule schedule(int way) {
  static std::uint64_t seed = 0;
  using emulator::Policy;
  constexpr Policy kPolicies[] = {Policy::random, Policy::run_ahead, Policy::hold_back,
                                  Policy::first_wave_first, Policy::last_wave_first};
  ++seed;
  return {.seed = seed,
          .policy = kPolicies[(seed + static_cast<std::uint64_t>(way)) % std::size(kPolicies)],
          .preempt_on_lds = seed % 4 == 0,
          .lds_bytes = static_cast<std::size_t>(device().lds_bytes)};
}

}  // namespace

const Device& device() {
  static const Device value = make_device();
  return value;
}
bool emulated() { return true; }
#if defined(__SANITIZE_ADDRESS__)  // what is written where does not depend on the schedule
int ways() { return 1; }
#else
int ways() { return 2; }
#endif

Mirror::Mirror(const Array& array, Contents) : data_(const_cast<void*>(array.data())) {}
Mirror::~Mirror() = default;
void Mirror::fetch(Array&) const {}

Error run_forward_launch(const ForwardArgs& args, const Launch& launch, int way) {
  const emulator::ScopedSchedule scoped(schedule(way));
  return launch_forward(args, launch);
}
Error run_backward_launch(const BackwardArgs& args, const Launch& launch, int way) {
  const emulator::ScopedSchedule scoped(schedule(way));
  return launch_backward(args, launch);
}

}  // namespace hipnorm::testing
