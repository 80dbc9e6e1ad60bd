#include "csrc/dispatch/select.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/forced.h"
#include "csrc/dispatch/table.h"
#include "csrc/dispatch/text.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm {
namespace {

// A serving process sees batches of every length; a line for each of them would fill its log.
constexpr int kMaxLogLines = 1000;

// Per thread, about 50 KB. A model has some ten distinct LayerNorm problems a direction; with four
// ways a set they practically never push each other out, which would cost microseconds a call.
constexpr std::size_t kMemoSets = 64;
constexpr std::size_t kMemoWays = 4;

[[noreturn]] void refuse(const std::string& config, const Problem& problem,
                         const std::string& reason) {
  throw std::invalid_argument(
      concat("hipnorm: ", config, " cannot run ", to_string(problem), ": ", reason));
}

bool agrees(const PartialConfig& forced, const Config& config) {
  if (config.variant != forced.config.variant) return false;
  for (std::size_t i = 0; i < std::size(kConfigFields); ++i) {
    const auto value = kConfigFields[i].value;
    if (forced.given[i] && config.*value != forced.config.*value) return false;
  }
  return true;
}

Config with_given(const PartialConfig& forced, Config config) {
  for (std::size_t i = 0; i < std::size(kConfigFields); ++i) {
    const auto value = kConfigFields[i].value;
    if (forced.given[i]) config.*value = forced.config.*value;
  }
  return config;
}

// Gives the free fields values: those of the cheapest candidate that agrees with the given ones;
// else of the variant's cheapest candidate; else the lowest allowed.
Config complete(const PartialConfig& forced, const Problem& problem, const Device& device) {
  const VariantInfo& variant = info(forced.config.variant);
  Config lowest{.variant = forced.config.variant};
  for (const ConfigField& field : kConfigFields) {
    lowest.*field.value = (variant.*field.limits).low;
  }
  std::optional<Config> nearest;
  for (const Config& config : candidates(problem, device)) {
    if (agrees(forced, config)) return config;
    if (!nearest && config.variant == forced.config.variant) nearest = config;
  }
  if (nearest) {
    const Config config = with_given(forced, *nearest);
    if (!validate(config, problem, device)) return config;
  }
  const Config config = with_given(forced, lowest);
  if (auto reason = validate(config, problem, device)) {
    refuse(concat("forced config ", to_string(forced)), problem, *reason);
  }
  return config;
}

// False where the runtime says that not one group of a persistent kernel fits on the device, which
// the cost model's formula may have thought.
bool runs(const Plan& plan, const Problem& problem) { return plan.tasks > 0 || !has_work(problem); }

// A row of another shape may be far from good for this one, in rows most of all: one block for each
// of 512 rows is fine, for each of 262144 it is not. So it is passed over where the cost model
// finds it this much slower than the default: twice what the model errs near the best (H200).
constexpr double kNearLimit = 1.4;

// From the tables of the device's architecture, the user's first: a row of this very shape in any
// of them comes before one of a near shape. `chosen_default()` takes most of a look-up's time, and
// is called where there is a near row.
template <typename F>
std::optional<Selection> from_tables(const Problem& problem, const Device& device,
                                     const F& chosen_default) {
  for (const Table* table : tables()) {
    if (table->arch() != device.arch) continue;
    if (const TableRow* row = table->exact(problem, device)) {
      return Selection{row->config, Source::table, {}};
    }
  }
  for (const Table* table : tables()) {
    if (table->arch() != device.arch) continue;
    const TableRow* row = table->near(problem, device);
    if (row != nullptr && predict(row->config, problem, device).seconds <=
                              kNearLimit * predict(chosen_default(), problem, device).seconds) {
      return Selection{row->config, Source::near, {}};
    }
  }
  return std::nullopt;
}

// Forced, else from the tables of measured configs, else the default.
Selection choose(const Problem& problem, const Device& device) {
  // Before anything computes with its sizes.
  if (const auto reason = check_problem(problem)) {
    throw std::invalid_argument(concat("hipnorm: ", to_string(problem), ": ", *reason));
  }
  Selection selection;
  std::optional<Config> found;
  const auto chosen_default = [&]() -> const Config& {
    if (!found) found = default_config(problem, device);
    return *found;
  };
  if (const auto forced = forced_config(problem.op)) {
    selection.config = complete(*forced, problem, device);
    selection.source = Source::forced;
  } else if (const auto measured = from_tables(problem, device, chosen_default)) {
    selection = *measured;
  } else {
    selection.config = chosen_default();
    selection.source = Source::chosen_default;
    if (auto reason = validate(selection.config, problem, device)) {
      refuse(to_string(selection.config), problem, *reason);
    }
  }
  selection.plan = plan(selection.config, problem, device);
  if (runs(selection.plan, problem)) return selection;
  if (selection.source == Source::forced) {
    refuse(to_string(selection.config), problem,
           concat("the runtime of ", device.arch, " says that it cannot hold one group of it"));
  }
  selection.source = Source::chosen_default;
  for (const Config& config : candidates(problem, device)) {
    if (on_request_only(config.variant)) continue;
    selection.config = config;
    selection.plan = plan(config, problem, device);
    if (runs(selection.plan, problem)) return selection;
  }
  selection.config = plainest_config(problem, device);
  selection.plan = plan(selection.config, problem, device);
  return selection;
}

std::string microseconds(double seconds) { return concat(seconds * 1e6, " us"); }

// Why `variant` was not taken.
std::string refusal(Variant variant, const std::vector<Config>& ranked, const Selection& selection,
                    const Problem& problem, const Device& device) {
  if (selection.source != Source::chosen_default)
    return concat("not ", to_string(selection.source));
  for (const Config& config : ranked) {
    if (config.variant != variant) continue;
    return concat("predicted ", microseconds(predict(config, problem, device).seconds));
  }
  return "no valid candidate";
}

// "hipnorm: <problem> on <arch> -> <config>  source=…  predicted=…; refused: <variant>: <reason>"
void log_selection(const Selection& selection, const Problem& problem, const Device& device) {
  static std::atomic<int> lines = 0;
  if (lines.load(std::memory_order_relaxed) > kMaxLogLines) return;
  const int line = lines.fetch_add(1, std::memory_order_relaxed);
  if (line > kMaxLogLines) return;
  std::string text = "hipnorm: ";
  if (line == kMaxLogLines) {
    text += concat("HIPNORM_LOG ends here, after ", kMaxLogLines, " lines");
  } else {
    const std::vector<Config> ranked = candidates(problem, device);
    text +=
        concat(to_string(problem), " on ", device.arch, " -> ", describe(selection),
               "  predicted=", microseconds(predict(selection.config, problem, device).seconds));
    const char* separator = "; refused: ";
    for (std::size_t i = 0; i < variants().size(); ++i) {
      const auto variant = static_cast<Variant>(i);
      if (variant == selection.config.variant || info(variant).kind != device.kind ||
          !serves(info(variant), problem.op)) {
        continue;
      }
      text += concat(separator, info(variant).name, ": ",
                     refusal(variant, ranked, selection, problem, device));
      separator = ", ";
    }
  }
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);  // one call: lines of threads do not mix
}

bool log_is_on() {
  static const bool on = [] {
    const char* value = std::getenv("HIPNORM_LOG");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return on;
}

// What of the device a memo entry depends on. A Device does not change while it is in use; its
// address alone would mistake one that took another's place.
struct DeviceKey {
  const Device* address = nullptr;
  DeviceKind kind{};
  int compute_units = 0;
  int max_vec_bytes = 0;
  int wave_size = 0;
  int registers = 0;
  std::int64_t lds_bytes = 0;
  friend bool operator==(const DeviceKey&, const DeviceKey&) = default;
};

struct MemoEntry {
  std::uint64_t hash = 0;
  std::uint64_t generation = 0;  // of the forced configs; 0: empty
  Problem problem;
  DeviceKey device;
  Selection selection;
};
struct MemoSet {
  std::array<MemoEntry, kMemoWays> ways;
  std::size_t oldest = 0;
};
using Memo = std::array<MemoSet, kMemoSets>;

// Multiplicative hashing; the best-mixed bits of a product are its highest.
std::uint64_t hash_of(const Problem& problem, const DeviceKey& device) {
  const std::uint64_t small =
      static_cast<std::uint64_t>(problem.op) | static_cast<std::uint64_t>(problem.x) << 8 |
      static_cast<std::uint64_t>(problem.weight) << 16 |
      static_cast<std::uint64_t>(problem.has_weight) << 24 |
      static_cast<std::uint64_t>(problem.has_bias) << 25 |
      static_cast<std::uint64_t>(problem.grads.dx) << 26 |
      static_cast<std::uint64_t>(problem.grads.dweight) << 27 |
      static_cast<std::uint64_t>(problem.grads.dbias) << 28 |
      static_cast<std::uint64_t>(static_cast<unsigned>(problem.alignment)) << 32;
  std::uint64_t hash = 0;
  for (const std::uint64_t value :
       {small, static_cast<std::uint64_t>(problem.rows), static_cast<std::uint64_t>(problem.cols),
        static_cast<std::uint64_t>(device.compute_units),
        static_cast<std::uint64_t>(std::bit_cast<std::uintptr_t>(device.address))}) {
    hash = (std::rotl(hash, 29) ^ value) * 0x9E3779B97F4A7C15u;  // 2^64 ÷ golden ratio
  }
  return hash;
}

MemoSet& memo_set(std::uint64_t hash) {
  thread_local const std::unique_ptr<Memo> memo = std::make_unique<Memo>();
  return (*memo)[hash >> 58];
}
static_assert(kMemoSets == 64, "the set is the hash's 6 highest bits");

}  // namespace

std::string_view to_string(Source source) {
  switch (source) {
    case Source::forced: return "forced";
    case Source::table: return "table";
    case Source::near: return "near";
    case Source::chosen_default: return "default";
  }
  return "unknown";
}

Selection select(const Problem& problem, const Device& device) {
  const std::uint64_t generation = forced_generation();  // read before what it guards
  const DeviceKey key{
      &device,          device.kind,      device.compute_units, device.max_vec_bytes,
      device.wave_size, device.registers, device.lds_bytes};
  const std::uint64_t hash = hash_of(problem, key);
  MemoSet& set = memo_set(hash);
  for (const MemoEntry& entry : set.ways) {
    if (entry.hash != hash || entry.generation != generation || entry.problem != problem ||
        entry.device != key) {
      continue;
    }
    if (auto reason = validate(entry.selection.config, problem, device)) {
      refuse(to_string(entry.selection.config), problem, *reason);
    }
    return entry.selection;
  }
  const Selection selection = choose(problem, device);
  set.ways[set.oldest] = {hash, generation, problem, key, selection};
  set.oldest = (set.oldest + 1) % kMemoWays;
  if (log_is_on()) log_selection(selection, problem, device);
  return selection;
}

std::string describe(const Selection& selection) {
  return concat(to_string(selection.config), "  source=", to_string(selection.source));
}

}  // namespace hipnorm
