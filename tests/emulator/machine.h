// The emulator's inside: threads, waves, blocks and clusters that are resident together, and who
// runs next. One machine, one launch at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/emulator/device.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/races.h"
#include "tests/emulator/random.h"
#include "tests/emulator/schedule.h"

namespace hipnorm::emulator {

struct Wave;
struct Block;
struct Cluster;

// What a thread is at, for reports and for the lanes of a wave to agree on.
enum class At {
  nothing,
  shuffle,
  shuffle_xor,
  wave_sync,
  syncthreads,
  barrier_wait,
  cluster_wait,
  agent_load,
  exited,
};
const char* name_of(At at);

struct Fiber {
  ThreadContext thread;
  Strand* strand = nullptr;
  Wave* wave = nullptr;
  int lane = 0;
  At at = At::exited;
  Site site;
  // What it polls: since when nothing else happened, and what it read last.
  int loads = 0;
  const std::uint64_t* loaded_from = nullptr;
  std::uint64_t loaded = 0;
  // Where it is at barrier_wait.
  int barrier = 0;
  unsigned parity = 0;
  bool arrived_at_cluster = false;
  std::uint64_t cluster_epoch = 0;  // when it arrived
};

// Lanes as bits. Every live lane is ready, running, or counted in one place where it waits.
struct Wave {
  std::uint64_t ready = 0;
  std::uint64_t live = 0;
  std::uint64_t at_syncthreads = 0;
  std::uint64_t at_cluster = 0;
  // The operation of the whole wave that its first lane began.
  std::uint64_t arrived = 0;
  At operation = At::nothing;
  int width = 0;
  std::size_t size = 0;
  Site site;
  // What lanes handed in, and which did: one set for the operation under way, one for the one
  // before, whose values slow lanes have yet to take.
  std::uint64_t generation = 0;
  std::uint64_t values[2][64];
  std::uint64_t participants[2] = {0, 0};

  Block* block = nullptr;
  Fiber* lanes = nullptr;
  std::uint32_t index = 0;           // in the machine
  std::uint32_t ready_position = 0;  // in Machine::ready_waves, if ready != 0
};

// An AsyncBarrier as it was initialised; LDS holds only a handle.
struct BarrierRecord {
  std::ptrdiff_t offset = 0;
  std::uint32_t arrivals = 0;  // of a phase
  std::uint32_t pending = 0;   // arrivals that this phase still waits for
  std::int64_t bytes = 0;      // that this phase still waits for; below zero: came unexpected
  std::uint64_t phase = 0;
  std::vector<Fiber*> waiting;
  const Fiber* initialiser = nullptr;
  bool fenced = false;
  std::uint64_t block_epoch = 0, cluster_epoch = 0;  // at barrier_init
};

struct Block {
  BlockContext context;
  std::int64_t index = 0;
  Cluster* cluster = nullptr;
  Wave* waves = nullptr;
  int wave_count = 0;
  int threads = 0;
  int live = 0;
  int exited = 0;
  int arrived = 0;          // at __syncthreads
  std::uint64_t epoch = 0;  // __syncthreads so far
  std::vector<BarrierRecord> barriers;
  // 1 for each word of LDS that a copy or post in flight will overwrite, and how many there are.
  std::vector<unsigned char> in_flight;
  int in_flight_count = 0;
  Races* races = nullptr;  // null: not detected
};

struct Cluster {
  std::int64_t index = 0;
  Block* blocks = nullptr;
  int size = 0;
  int threads = 0;
  int arrived = 0;
  int absent = 0;  // exited without having arrived in this phase
  int exited = 0;
  std::uint64_t epoch = 0;  // completed phases
};

// A copy or post that has not landed yet.
struct Flight {
  const Fiber* issuer = nullptr;
  Site site;
  Block* block = nullptr;  // where it lands
  std::ptrdiff_t target = 0, barrier = 0;
  std::uint32_t bytes = 0;
  const void* source = nullptr;  // null: `data` was taken at issue
  std::vector<unsigned char> data;
};

struct LoggedAccess {
  std::ptrdiff_t offset = 0;
  std::size_t size = 0;
  std::size_t before = 0;  // its bytes in Machine::bytes_before
  Site site;
};

class Machine {
 public:
  hipError_t launch(const Call& call, const gpu::Grid& grid, int wave);

  // Ends the launch: the running fiber unwinds, the others are dropped where they stand.
  [[noreturn]] void fault(const Fiber& thread, Site site, const std::string& what);

  // The running thread lets others run if the schedule wants it.
  void preempt();
  // The running thread waits until make_ready().
  void wait(At at, Site site);
  // It is at the start of an operation that is no agent_load.
  void note_progress() {
    spins = 0;
    running->loads = 0;
    if (!accesses.empty()) check_accesses();
  }
  // An access to LDS by the running thread. Whether it reads or writes shows later, in what the
  // bytes are then: nobody else runs before check_accesses().
  void note_access(std::ptrdiff_t offset, std::size_t size, Site site);
  void check_accesses();
  void check_overwrite(const Fiber& thread, std::ptrdiff_t offset, std::ptrdiff_t bytes, Site site,
                       bool needs_fence);
  void make_ready(Wave& wave, std::uint64_t lanes);
  void make_ready(Fiber& fiber) { make_ready(*fiber.wave, std::uint64_t{1} << fiber.lane); }

  std::uint64_t wave_operation(At at, std::uint64_t bits, std::size_t size, int width, Site site);
  void complete_wave_operation(Wave& wave);
  void sync_threads(Site site);
  void cluster_arrive(Site site);
  void cluster_wait(Site site);
  std::uint64_t agent_load(const std::uint64_t* flag, Site site);
  void land(std::size_t i);

  // State of the launch.
  Call call{};
  gpu::Grid grid{};
  int wave_size = 32;
  Schedule schedule;
  Random random;
  Fiber* running = nullptr;
  std::vector<Flight> flights;
  std::vector<LoggedAccess> accesses;
  std::vector<unsigned char> bytes_before;
  std::string message;  // of the fault
  std::int64_t switches = 0;

 private:
  friend void run_threads();
  std::string refusal() const;
  void arrange();
  void start_cluster(Cluster& cluster, std::int64_t index);
  [[noreturn]] void report_unmatched(const Block& block);
  void exit_thread();
  Fiber* pick();
  Wave& choose_wave();
  Fiber* take(Wave& wave, int lane);
  [[noreturn]] void report_deadlock();
  void switch_to(Fiber* next);

  Stacks stacks;
  std::vector<Fiber> fibers;
  std::vector<Wave> waves;
  std::vector<Block> blocks;
  std::vector<Cluster> clusters;
  std::vector<unsigned char> lds;
  std::deque<Races> races;  // of each block; kept, as the next launch needs as much memory
  Fiber host;               // the caller of launch()
  std::int64_t live = 0;
  std::int64_t next_draw = 0;  // switches until run_ahead and hold_back choose another wave
  std::uint32_t favourite = 0;
  std::uint32_t landing_odds = 0;  // of 256, at each switch
  std::vector<std::uint32_t> ready_waves;
  std::vector<Fiber*> idle;  // at agent_load
  std::int64_t spins = 0;    // agent_load since anything else happened
};
extern Machine machine;

inline Block& block_of(const Fiber& fiber) { return *fiber.wave->block; }
inline int wave_of(const Fiber& fiber) {  // in its block
  return static_cast<int>(fiber.wave - block_of(fiber).waves);
}
inline unsigned index_of(const Fiber& fiber) { return fiber.thread.thread_idx.x; }
// " (forward.hip:12)"; empty without a place.
std::string at_site(Site site);
std::string name_of_kernel(const Call& call);

}  // namespace hipnorm::emulator
