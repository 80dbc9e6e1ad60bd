#include "bench/machine.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace hipnorm::bench {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

// One integer from a file, or -1 ("max" in a control group's limit is none either).
std::int64_t read_integer(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

std::string line_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return "";
}

// What is left below a control group's limit, -1 without one.
std::int64_t group_memory() {
  for (const auto& [limit, used] : {std::pair{"/sys/fs/cgroup/memory.max",  // version 2
                                              "/sys/fs/cgroup/memory.current"},
                                    std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                              "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    const std::int64_t most = read_integer(limit);
    const std::int64_t now = read_integer(used);
    if (most >= 0 && now >= 0) return std::max<std::int64_t>(0, most - now);
  }
  return -1;
}

struct ProcessorTimes {
  double total = 0;
  double busy = 0;
};
ProcessorTimes processor_times() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;  // "cpu", then user nice system idle iowait irq softirq steal in clock ticks
  ProcessorTimes times;
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  for (int field = 0; field < 8; ++field) {
    double ticks = 0;
    if (!(file >> ticks)) return {};
    times.total += ticks * tick;
    if (field != 3 && field != 4) times.busy += ticks * tick;
  }
  return times;
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Neighbours::Neighbours()
    : total_(processor_times().total), busy_(processor_times().busy), own_(own_seconds()) {}

double Neighbours::share() const {
  const auto [total, busy] = processor_times();
  if (total <= total_) return 0;
  const double others = (busy - busy_) - (own_seconds() - own_);
  return std::clamp(others / (total - total_), 0.0, 1.0);
}

std::string cpu_model() {
  const std::string name = line_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown CPU" : name;
}

std::int64_t available_memory() {
  const std::string text = line_value("/proc/meminfo", "MemAvailable");
  const std::int64_t system = text.empty() ? -1 : std::stoll(text) * kKiB;
  const std::int64_t group = group_memory();
  if (system < 0 || group < 0) return std::max(system, group);
  return std::min(system, group);
}

std::int64_t last_level_cache() {
  // The kernel's view of this machine's cores. sysconf() asks the processor instead and, in a
  // virtual machine, gets the size of every cache of the host together.
  std::int64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::ifstream file(folder + "/size");
    std::int64_t size = 0;
    char unit = 'B';
    if (!(file >> size)) break;
    file >> unit;
    bytes = std::max(bytes, size * (unit == 'K' ? kKiB : unit == 'M' ? kMiB : 1));
  }
  return bytes > 0 ? bytes : 32 * kMiB;
}

bool set_heap(Pages pages) {
  // Setting any of these also stops glibc from adapting its thresholds while the program runs. A
  // trim threshold of -1 stands for never.
  if (pages == Pages::resident) {
    return mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1 &&
           mallopt(M_TOP_PAD, 64 * kMiB) == 1;
  }
  return mallopt(M_MMAP_THRESHOLD, 128 * kKiB) == 1 && mallopt(M_TRIM_THRESHOLD, 128 * kKiB) == 1;
}

}  // namespace hipnorm::bench
