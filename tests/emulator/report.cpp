// Sentences about faults.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/machine.h"
#include "tests/emulator/symbol.h"

namespace hipnorm::emulator {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

// What it waits for, and what is missing there.
std::string wait_of(const Fiber& fiber) {
  const Block& block = block_of(fiber);
  const Wave& wave = *fiber.wave;
  std::string text = name_of(fiber.at) + at_site(fiber.site);
  switch (fiber.at) {
    case At::syncthreads:
      return text + ", where " + number(block.arrived) + " of " + number(block.live) +
             " threads have arrived";
    case At::shuffle:
    case At::shuffle_xor:
    case At::wave_sync:
      return text + ", where " + number(std::popcount(wave.arrived)) + " of the wave's " +
             number(std::popcount(wave.live)) + " lanes have arrived";
    case At::cluster_wait:
      return text + ", where " + number(block.cluster->arrived) + " of " +
             number(block.cluster->threads) + " threads have arrived";
    case At::barrier_wait: {
      const BarrierRecord& barrier = block.barriers[static_cast<std::size_t>(fiber.barrier)];
      return text + " for parity " + number(fiber.parity) + " of the AsyncBarrier at LDS byte " +
             number(barrier.offset) + ", whose phase " +
             number(static_cast<std::int64_t>(barrier.phase)) + " lacks " +
             number(barrier.pending) + " arrivals and " + number(barrier.bytes) + " bytes";
    }
    case At::agent_load:
      return text + ", where it reads " + number(static_cast<std::int64_t>(fiber.loaded)) +
             " again and again" +
             (machine.grid.cooperative
                  ? ""
                  : "; without a cooperative launch no other block need be running");
    case At::nothing:
    case At::exited: break;
  }
  return text;
}

// "threads 0–31, 40 and 42–63".
std::string threads_of(const std::vector<unsigned>& threads) {
  std::string text;
  for (std::size_t i = 0; i < threads.size();) {
    std::size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += std::to_string(threads[i]);
    if (end - i > 1) text += "–" + std::to_string(threads[end - 1]);
    i = end;
    if (text.size() > 60 && i < threads.size()) {
      text += " and " + std::to_string(threads.size() - i) + " more";
      break;
    }
  }
  return (threads.size() == 1 ? "thread " : "threads ") + text;
}

}  // namespace

const char* name_of(At at) {
  switch (at) {
    case At::nothing: return "no operation";
    case At::shuffle: return "__shfl";
    case At::shuffle_xor: return "__shfl_xor";
    case At::wave_sync: return "wave_sync";
    case At::syncthreads: return "__syncthreads";
    case At::barrier_wait: return "barrier_wait";
    case At::cluster_wait: return "cluster_wait";
    case At::agent_load: return "agent_load";
    case At::exited: return "its end";
  }
  return "?";
}

std::string at_site(Site site) {
  if (site.line() == 0) return "";
  std::string_view file = site.file_name();
  file.remove_prefix(file.rfind('/') + 1);
  return " (" + std::string(file) + ":" + std::to_string(site.line()) + ")";
}

std::string name_of_kernel(const Call& call) {
  const std::string name = name_of_function(call.kernel);
  if (!name.empty()) return "kernel " + name;
  std::string_view type = call.args_type;
  const std::size_t start = type.find("Args = ");
  if (start != type.npos) {
    type.remove_prefix(start + std::strlen("Args = "));
    type = type.substr(0, type.find_first_of(";]"));
  }
  return "kernel of " + std::string(type);
}

void Machine::report_deadlock() {
  struct Group {
    const Fiber* first;
    std::string wait;
    std::vector<unsigned> threads;
  };
  std::vector<Group> groups;
  for (const Fiber& fiber : fibers) {
    if (fiber.at == At::exited) continue;
    const std::string wait = wait_of(fiber);
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return &block_of(*g.first) == &block_of(fiber) && g.wait == wait;
    });
    if (group != groups.end()) {
      group->threads.push_back(index_of(fiber));
    } else {
      groups.push_back({&fiber, wait, {index_of(fiber)}});
    }
  }
  constexpr std::size_t kMostGroups = 6;
  std::string text = "deadlock: ";
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const Group& group = groups[i];
    if (i > 0) text += "; ";
    text += threads_of(group.threads) + " of block " + number(block_of(*group.first).index) +
            (group.threads.size() == 1 ? " waits at " : " wait at ") + group.wait;
  }
  if (groups.size() > kMostGroups) {
    text += "; and " + number(static_cast<std::int64_t>(groups.size() - kMostGroups)) +
            " groups of threads more";
  }
  fault(*groups.front().first, {}, text);
}

}  // namespace hipnorm::emulator
