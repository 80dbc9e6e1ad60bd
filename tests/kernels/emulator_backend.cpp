// The GPU kernels in the emulator. Its device is small, so that persistent kernels take several
// steps on little data.
#include <vector>

#include "kernels/gpu/resident.h"
#include "tests/emulator/schedule.h"
#include "tests/kernels/backend.h"

namespace hipnorm::testing {
namespace {

constexpr int kWave = HIPNORM_EMULATED_WAVE;

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
  if (kWave == 32) {  // as sm_90
    d.arch = "emulated-wave32";
    d.lds_bytes = 227 << 10;
    d.unit_lds_bytes = 228 << 10;
    d.registers = 65536;
    d.max_cluster = 8;
    d.bulk_copies = true;
  } else {  // as gfx942
    d.arch = "emulated-wave64";
    d.lds_bytes = d.unit_lds_bytes = 64 << 10;
    d.registers = 131072;
    d.dies = 2;
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
          .preempt_on_lds = seed % 4 == 0};
}

}  // namespace

const Device& device() {
  static const Device value = make_device();
  return value;
}
bool emulated() { return true; }
int ways() { return 2; }

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
