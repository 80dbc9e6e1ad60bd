// What dispatch knows of the machine. kernels/ fills it, once per device; dispatch only reads.
#pragma once

#include <cstdint>
#include <string>

namespace hipnorm {

enum class DeviceKind : std::uint8_t { cpu, gpu };

struct Device {
  std::string arch;  // names the table: "cpu-avx2", "sm_90", "gfx942"
  DeviceKind kind = DeviceKind::cpu;
  int compute_units = 1;       // CPU: threads that parallel_for uses; GPU: CUs or SMs
  int max_vec_bytes = 16;      // widest vector access: CPU 16, 32 or 64; GPU 16
  std::int64_t l1_bytes = 0;   // private to a compute unit
  std::int64_t l2_bytes = 0;   // CPU: private to a core; GPU: shared
  std::int64_t llc_bytes = 0;  // last level, shared by all compute units
  double bandwidth = 0;        // bytes/s to memory, all compute units together
  double unit_bandwidth = 0;   // bytes/s to memory that one compute unit reaches alone
  double launch_seconds = 0;   // fixed cost of one launch (CPU: of one parallel_for)
};

}  // namespace hipnorm
