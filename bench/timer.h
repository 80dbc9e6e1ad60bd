// Timing: several ways to do the same work, in turns, under one clock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace hipnorm::bench {

// Measures what happens between start() and stop().
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void start() = 0;
  virtual double stop() = 0;  // seconds; waits for what was queued since start()
};

// CPU: the wall clock. GPU: events on the device's current stream, through c10's generic interface,
// so that one binary serves NVIDIA and AMD.
std::unique_ptr<Stopwatch> make_stopwatch(at::Device device);

// Empties the caches: writes, then reads a buffer several times their size. The read evicts what
// the write left dirty, else its write-back would fall into the timed region.
class CacheFlusher {
 public:
  explicit CacheFlusher(at::Device device);
  void flush();
  std::int64_t bytes() const { return buffer_.numel() * buffer_.element_size(); }

 private:
  at::Tensor buffer_;
  double sink_ = 0;
};

// One of the ways: prepare() is not timed, call() is; finish() drops the results, not timed either.
struct Side {
  std::function<void()> prepare;
  std::function<void()> call;
  std::function<void()> finish;
};

struct Repeats {
  double seconds = 0;  // the time to spend on all sides together, as far as the counts allow
  int least = 0;       // rounds; a round is one turn of every side
  int most = 0;
};

// Medians in seconds per call, one for each side, each call on flushed caches. Warms up with two
// rounds first, so that memory is mapped, threads are awake and lazy initialisation is over.
std::vector<double> time_flushed(std::span<const Side> sides, Stopwatch& stopwatch,
                                 CacheFlusher& flusher, const Repeats& repeats);

// The same for calls that take microseconds: a turn is a batch of calls that takes about 1 ms, on
// warm caches, prepare() and finish() once per batch.
std::vector<double> time_batches(std::span<const Side> sides, Stopwatch& stopwatch,
                                 const Repeats& repeats);

}  // namespace hipnorm::bench
