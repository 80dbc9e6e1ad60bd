#include "csrc/dispatch/forced.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "csrc/dispatch/text.h"

namespace hipnorm {
namespace {

using ForcedOps = std::array<std::optional<PartialConfig>, kOps.size()>;

std::size_t index_of(Op op) { return static_cast<std::size_t>(op); }

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <typename Items, typename Name>
std::string list(const Items& items, Name name) {
  std::string text;
  for (const auto& item : items) {
    const std::string_view each = name(item);
    if (!each.empty()) text += concat(text.empty() ? "" : ", ", each);
  }
  return text;
}

// One "op=config" into `forced`; on failure the reason.
std::optional<std::string> parse_piece(std::string_view piece, ForcedOps& forced) {
  const std::size_t equals = piece.find('=');
  if (equals == std::string_view::npos) {
    return concat("expected op=config, but got '", piece, "'");
  }
  const std::string_view op_name = trim(piece.substr(0, equals));
  const std::optional<Op> op = parse_op(op_name);
  if (!op) {
    return concat("unknown op '", op_name, "'; expected one of ",
                  list(kOps, [](Op each) { return to_string(each); }));
  }
  if (forced[index_of(*op)]) return concat("op '", op_name, "' is named twice");

  const std::string_view text = trim(piece.substr(equals + 1));
  const std::string_view variant = text.substr(0, text.find(':'));
  const auto serving = [&](const VariantInfo& each) {
    return serves(each, *op) ? each.name : std::string_view();
  };
  bool known = false;
  for (const VariantInfo& each : variants()) known |= serving(each) == variant && !variant.empty();
  if (!known) {
    return concat("'", variant, "' is no variant of ", op_name, "; expected one of ",
                  list(variants(), serving));
  }
  PartialConfig config;
  std::string error;
  if (!parse_config(text, config, error)) return error;
  forced[index_of(*op)] = config;
  return std::nullopt;
}

// "op=config;op=config", a trailing ';' allowed. Throws std::invalid_argument.
ForcedOps parse(std::string_view text) {
  ForcedOps forced;
  std::string_view rest = text;
  do {
    const std::size_t semicolon = rest.find(';');
    const std::string_view piece = trim(rest.substr(0, semicolon));
    if (auto reason = parse_piece(piece, forced)) {
      throw std::invalid_argument(concat("hipnorm: forced config '", text, "': ", *reason));
    }
    rest = semicolon == std::string_view::npos ? "" : trim(rest.substr(semicolon + 1));
  } while (!rest.empty());
  return forced;
}

struct Environment {
  ForcedOps forced;
  std::string error;

  Environment() {
    const char* text = std::getenv("HIPNORM_FORCE_CONFIG");
    if (text == nullptr || trim(text).empty()) return;
    try {
      forced = parse(text);
    } catch (const std::invalid_argument& problem) {
      error = concat("HIPNORM_FORCE_CONFIG: ", problem.what());
    }
  }
};

struct Guards {
  struct Entry {
    std::uint64_t id;
    ForcedOps forced;
  };
  std::mutex mutex;
  std::vector<Entry> entries;  // oldest first
  std::uint64_t next_id = 0;
};

// Never destroyed: a guard or a call on another thread may outlive static destruction.
Guards& guards() {
  static Guards* const all = new Guards;
  return *all;
}

// Starts at 1, so that a zeroed memo entry is never current.
std::atomic<std::uint64_t> generation = 1;

}  // namespace

ForcedConfigGuard::ForcedConfigGuard(std::string_view text) {
  ForcedOps forced = parse(text);
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  id_ = all.next_id++;
  all.entries.push_back({id_, forced});
  generation.fetch_add(1, std::memory_order_release);
}

ForcedConfigGuard::~ForcedConfigGuard() {
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries, [&](const Guards::Entry& entry) { return entry.id == id_; });
  generation.fetch_add(1, std::memory_order_release);
}

std::optional<PartialConfig> forced_config(Op op) {
  static const Environment environment;
  if (!environment.error.empty()) throw std::invalid_argument(environment.error);
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  for (auto entry = all.entries.rbegin(); entry != all.entries.rend(); ++entry) {
    if (entry->forced[index_of(op)]) return entry->forced[index_of(op)];
  }
  return environment.forced[index_of(op)];
}

std::uint64_t forced_generation() { return generation.load(std::memory_order_acquire); }

}  // namespace hipnorm
