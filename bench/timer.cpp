#include "bench/timer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <vector>

#include "bench/machine.h"

namespace hipnorm::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class WallClock final : public Stopwatch {
 public:
  void start() override { begin_ = Clock::now(); }
  double stop() override { return since(begin_); }

 private:
  Clock::time_point begin_;
};

class EventPair final : public Stopwatch {
 public:
  // BACKEND_DEFAULT is the flag with which a backend's events take the time.
  explicit EventPair(at::Device device)
      : guard_(device.type()),
        device_(device),
        begin_(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        end_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}
  void start() override { begin_.record(guard_.getStream(device_)); }
  double stop() override {
    end_.record(guard_.getStream(device_));
    end_.synchronize();
    return begin_.elapsedTime(end_) * 1e-3;  // milliseconds
  }

 private:
  c10::impl::VirtualGuardImpl guard_;
  at::Device device_;
  c10::Event begin_;
  c10::Event end_;
};

// 4 times the largest cache known on a GPU (256 MiB on MI300X and MI350X).
constexpr std::int64_t kGpuFlushBytes = std::int64_t{1} << 30;

constexpr double kBatchSeconds = 1e-3;

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<double> medians(std::vector<std::vector<double>>& samples) {
  std::vector<double> result;
  for (std::vector<double>& sample : samples) result.push_back(median(sample));
  return result;
}

// Rounds of every side, the first side another one in each round, so that no side always runs in
// the wake of the same neighbour.
template <typename Turn>
std::vector<double> rotate(std::size_t sides, int rounds, const Turn& turn) {
  std::vector<std::vector<double>> samples(sides);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < sides; ++i) {
      const std::size_t side = (static_cast<std::size_t>(round) + i) % sides;
      samples[side].push_back(turn(side));
    }
  }
  return medians(samples);
}

int rounds_for(double round_seconds, const Repeats& repeats) {
  const double affordable = repeats.seconds / std::max(round_seconds, 1e-9);
  return static_cast<int>(std::clamp<double>(affordable, repeats.least, repeats.most));
}

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch(at::Device device) {
  if (device.is_cpu()) return std::make_unique<WallClock>();
  return std::make_unique<EventPair>(device);
}

CacheFlusher::CacheFlusher(at::Device device)
    : buffer_(at::empty({(device.is_cpu() ? 4 * last_level_cache() : kGpuFlushBytes) / 4},
                        at::device(device).dtype(at::kFloat))) {
  buffer_.fill_(1);  // maps its pages
}

void CacheFlusher::flush() {
  if (!buffer_.is_cpu()) {
    buffer_.fill_(1);
    at::sum(buffer_);  // stays on the stream: the caller's stopwatch starts behind it
    return;
  }
  // One access in each 64-byte line moves the whole line. By hand, because fill_ may bypass the
  // caches and would leave them as they are.
  constexpr std::int64_t kStep = 64 / sizeof(float);
  float* data = buffer_.data_ptr<float>();
  const std::int64_t lines = buffer_.numel() / kStep;
  const std::int64_t grain = (lines + at::get_num_threads() - 1) / at::get_num_threads();
  at::parallel_for(0, lines, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) data[line * kStep] += 1;
  });
  std::atomic<double> total = 0;
  at::parallel_for(0, lines, grain, [&](std::int64_t begin, std::int64_t end) {
    double part = 0;
    for (std::int64_t line = begin; line < end; ++line) part += data[line * kStep];
    total = total + part;
  });
  sink_ += total;
}

std::vector<double> time_flushed(std::span<const Side> sides, Stopwatch& stopwatch,
                                 CacheFlusher& flusher, const Repeats& repeats) {
  const auto turn = [&](std::size_t index) {
    const Side& side = sides[index];
    side.prepare();
    flusher.flush();
    stopwatch.start();
    side.call();
    const double seconds = stopwatch.stop();
    side.finish();
    return seconds;
  };
  rotate(sides.size(), 1, turn);
  const Clock::time_point begin = Clock::now();
  rotate(sides.size(), 1, turn);
  return rotate(sides.size(), rounds_for(since(begin), repeats), turn);
}

std::vector<double> time_batches(std::span<const Side> sides, Stopwatch& stopwatch,
                                 const Repeats& repeats) {
  const auto batch = [&](std::size_t index, int calls) {
    const Side& side = sides[index];
    side.prepare();
    stopwatch.start();
    for (int i = 0; i < calls; ++i) side.call();
    const double seconds = stopwatch.stop();
    side.finish();
    return seconds / calls;
  };
  std::vector<int> calls(sides.size(), 1);
  double round_seconds = 0;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    batch(side, 20);
    const double one = batch(side, 20);
    calls[side] = static_cast<int>(std::clamp(std::ceil(kBatchSeconds / one), 1.0, 100000.0));
    round_seconds += one * calls[side];
  }
  return rotate(sides.size(), rounds_for(round_seconds, repeats),
                [&](std::size_t side) { return batch(side, calls[side]); });
}

}  // namespace hipnorm::bench
