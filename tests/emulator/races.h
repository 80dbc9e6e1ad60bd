// Finds accesses to LDS that nothing orders, in whatever order they happened to run: vector clocks,
// as in FastTrack (Flanagan, Freund 2009, https://doi.org/10.1145/1542476.1542490).
//
// A wave's clock counts the operations that all its lanes have met at (shuffles, wave_sync,
// barriers); between two of them a lane's turn counts the AsyncBarriers where it has arrived. An
// access is stamped with wave, lane, clock and turn. A thread has seen it if
//  - it is its own, or of its wave at an earlier clock;
//  - a __syncthreads lies between;
//  - it came before an arrival the end of whose phase this thread has waited for, or another thread
//    whose view has come to this one since.
// What an asynchronous copy wrote is seen by who has waited for the phase that it completed in. It
// may overwrite what a thread wrote only if a fence_async of that thread or of the one that issues
// the copy lies between.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/device.h"

namespace hipnorm::emulator {

struct Access {
  int wave = 0, lane = 0;
  Site site;
};

// Of one block.
class Races {
 public:
  void start(int waves, int wave_size, std::ptrdiff_t lds_bytes);

  // What happened between two accesses; `index`: of the AsyncBarrier. The cluster's barrier orders
  // nothing here: on sm_90 its arrival is relaxed (kernels/gpu/async.h).
  void wave_met(int wave);
  void block_met();
  void arrived(int wave, int lane, int index);
  void phase_ended(int index);
  void waited(int wave, int lane, int index);
  void fenced(int wave, int lane);
  void landed(std::ptrdiff_t offset, std::ptrdiff_t bytes, int index);

  // What the access races with, as a sentence; empty: nothing.
  std::string read(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes);
  std::string write(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes);
  // A copy or post is issued that will overwrite this.
  std::string overwrite(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes) const;
  std::string unfenced(const Access& access, std::ptrdiff_t offset, std::ptrdiff_t bytes) const;

 private:
  // Seen of a wave: all before `clock`, and at it so many turns of each lane.
  struct Stamp {
    std::uint32_t clock = 0;
    std::array<std::uint32_t, 64> turns{};
    void join(const Stamp& other);
  };
  struct View {
    std::vector<Stamp> waves;           // none: nothing seen
    std::vector<std::uint32_t> phases;  // of each barrier, how many have ended
    void join(const View& other);
  };
  struct Acquired {
    int barrier;
    std::shared_ptr<const View> view;
  };
  struct Wave {
    std::uint32_t clock = 1;
    std::uint32_t met = 1;    // all threads of the block have seen what was before
    View view;                // seen by all its lanes
    std::uint64_t apart = 0;  // lanes that have arrived or waited somewhere since it last met
  };
  struct Barrier {
    std::uint32_t phases = 0;
    View arrivals;                 // of the phase under way
    const View* joined = nullptr;  // to them the last: most threads bring the same
    std::shared_ptr<const View> ended;
  };
  static constexpr int kNone = -1, kCopy = -2;
  // An access by these lanes, all in the same turn. Wave kCopy: by a copy, which completed on
  // barrier `turn` in its phase `clock`.
  struct Stamped {
    int wave = kNone;
    std::uint32_t clock = 0, turn = 0;
    std::uint32_t fences = 0;  // fence_async in the block before it
    std::uint64_t lanes = 0;
    Site site;
  };
  // The last accesses to two bytes: an element of bf16 or f16 may have a thread of its own.
  struct Cell {
    std::uint32_t serial = 0;  // of the block; others' are as new
    int many = kNone;          // which part of many_ has the reads; none: there is at most `read`
    bool more = false;         // so has more_
    Stamped written;
    Stamped read;
  };
  static constexpr std::ptrdiff_t kCellBytes = 2;

  std::size_t thread(int wave, int lane) const {
    return static_cast<std::size_t>(wave * wave_size_ + lane);
  }
  Stamped stamp(const Access& access) const;
  Barrier& barrier(int index);
  Cell& fresh(std::ptrdiff_t index);
  bool has_seen(const Access& by, const Stamped& other) const {
    if (other.wave >= 0 && other.clock < waves_[static_cast<std::size_t>(other.wave)].met) {
      return true;  // nearly all: a __syncthreads lies between
    }
    return other.wave == kNone || has_seen_since(by, other);
  }
  bool has_seen_since(const Access& by, const Stamped& other) const;
  const Stamped* unseen_read(const Access& by, const Cell& cell) const;
  void note_read(const Access& by, Cell& cell);
  void forget_reads(Cell& cell);
  void set_written(const Stamped& by, std::ptrdiff_t offset, std::ptrdiff_t bytes);
  std::string sentence(const char* what, std::ptrdiff_t index, const Stamped& other,
                       const char* did) const;

  int wave_size_ = 32;
  std::uint32_t serial_ = 0;
  std::vector<Wave> waves_;
  std::vector<std::vector<Acquired>> acquired_;  // by each thread since its wave last met
  std::vector<std::uint32_t> turns_;             // of each thread
  std::vector<std::uint32_t> last_fence_;        // of each thread, its number in the block
  std::uint32_t fences_ = 0;
  std::vector<Barrier> barriers_;
  std::vector<std::uint32_t> phases_;  // seen by all
  std::vector<Cell> cells_;
  // Reads of cells that several waves read: for each such cell one of each wave. Where the lanes of
  // a wave have taken different turns, the others are in more_, with the cell's part of many_.
  std::vector<Stamped> many_;
  std::vector<std::pair<int, Stamped>> more_;
};

}  // namespace hipnorm::emulator
