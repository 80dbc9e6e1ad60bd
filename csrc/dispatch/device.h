// What dispatch knows of the machine. kernels/ fills it, once per device; dispatch only reads.
#pragma once

#include <cstdint>
#include <string>

namespace hipnorm {

enum class DeviceKind : std::uint8_t { cpu, gpu };

struct Config;
struct Plan;
struct Problem;

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

  // GPU only.
  int wave_size = 0;                // 32 or 64
  int max_threads = 0;              // of a block
  std::int64_t lds_bytes = 0;       // that one block may have
  std::int64_t unit_lds_bytes = 0;  // of one compute unit
  int registers = 0;                // of 32 bits, of one compute unit
  int max_cluster = 1;              // blocks of a cluster; 1: the device has no clusters
  bool bulk_copies = false;         // copies from memory to LDS by the copy engine (sm_90)
  bool cooperative = false;         // grids whose blocks all run at the same time
  int dies = 1;                     // parts with an L2 of their own, to which blocks go in turn
  // Blocks (clusters, where config.split > 1) of the config's main kernel that the device holds at
  // once, from the runtime's occupancy query. `plan` has threads, vectors and lds_bytes. Null: by
  // formula, from the fields above.
  int (*resident_groups)(const Config&, const Plan& plan, const Problem&, const Device&) = nullptr;
};

}  // namespace hipnorm
