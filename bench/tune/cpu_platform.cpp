#include "bench/tune/cpu_platform.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include "bench/machine.h"
#include "bench/tune/allowed.h"
#include "tests/reference/rows.h"

namespace hipnorm::tune {
namespace {

constexpr unsigned char kFill = 0xff;
constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();

// OMP_NUM_THREADS, as torch reads it; else one for each processor.
int thread_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  if (wanted > 0) return wanted;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void run_parallel(std::int64_t tasks, void (*task)(void* data, std::int64_t i), void* data) {
  const int threads = thread_count();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < tasks; ++i) task(data, i);
}

class CpuPlatform final : public Platform {
 public:
  char* allocate(std::size_t bytes) override {
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<char*>(memory);
  }
  void release(char* memory) override { std::free(memory); }
  void fill(char* to, std::size_t bytes) override { std::memset(to, kFill, bytes); }
  void copy(char* to, const char* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void upload(char* to, const char* host, std::size_t bytes) override { copy(to, host, bytes); }
  void wait() override {}

  Faults differing(const char* a, const char* b, std::size_t bytes) override {
    return count(static_cast<std::int64_t>(bytes), [=](std::int64_t first, std::int64_t end) {
      Faults faults;
      for (std::int64_t i = first; i < end; ++i) {
        if (a[i] == (b == nullptr ? static_cast<char>(kFill) : b[i])) continue;
        if (faults.count++ == 0) faults.first = static_cast<std::uint64_t>(i);
      }
      return faults;
    });
  }

  Faults judge(const Judged& o) override {
    return count(o.count, [&](std::int64_t first, std::int64_t end) {
      std::array<float, kPiece> got, low, high;
      const std::int64_t n = end - first;
      reference::load_row(o.dtype, o.got, first, n, got.data());
      reference::load_row(o.dtype, o.low, first, n, low.data());
      reference::load_row(o.dtype, o.high, first, n, high.data());
      Faults faults;
      for (std::int64_t k = 0; k < n; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const float found = misfit(got[at], low[at], high[at], o.must_be_nan);
        faults.worst = std::max<double>(faults.worst, found);
        if (found <= 1) continue;
        if (faults.count++ == 0) faults.first = static_cast<std::uint64_t>(first + k);
      }
      return faults;
    });
  }

  double time(const std::function<void()>& call) override {
    // Hundreds of MB on a server: not for whoever takes no times.
    if (flush_.empty()) flush_.resize(static_cast<std::size_t>(4 * bench::last_level_cache()));
    flush();
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return seconds.count();
  }

  ParallelFor parallel_for() const override { return run_parallel; }
  int threads() const override { return threads_; }

 private:
  static constexpr std::int64_t kPiece = 4096;

  // The sum of what `of_piece` finds in pieces of kPiece.
  template <typename F>
  Faults count(std::int64_t all, F of_piece) const {
    std::uint64_t found = 0, first = kNowhere;
    double worst = 0;
#pragma omp parallel for num_threads(threads_) schedule(static) reduction(+ : found) \
    reduction(min : first) reduction(max : worst)
    for (std::int64_t at = 0; at < all; at += kPiece) {
      const Faults faults = of_piece(at, std::min(all, at + kPiece));
      found += faults.count;
      if (faults.count > 0) first = std::min(first, faults.first);
      worst = std::max(worst, faults.worst);
    }
    return {.count = found, .first = first, .worst = worst};
  }

  // Writes, then reads a buffer of four times the last-level cache.
  void flush() {
    volatile char* data = flush_.data();
    const auto lines = static_cast<std::int64_t>(flush_.size() / 64);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t i = 0; i < lines; ++i) data[64 * i] = static_cast<char>(data[64 * i] + 1);
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t i = 0; i < lines; ++i) static_cast<void>(data[64 * i]);
  }

  int threads_ = thread_count();
  std::vector<char> flush_;
};

}  // namespace

Machine cpu_machine() {
  return {.device = &cpu_device(thread_count()), .name = bench::cpu_model(), .driver = ""};
}

std::unique_ptr<Platform> cpu_platform() { return std::make_unique<CpuPlatform>(); }

}  // namespace hipnorm::tune
