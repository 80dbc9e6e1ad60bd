// Forced configs: by environment, or for a scope in C++.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// Forces configs for as long as it lives, in the whole process: autograd runs backward on threads
// of its own. `text` is what HIPNORM_FORCE_CONFIG takes, "op=config;op=config", for instance
// "forward=cpu_forward_row:vec_bytes=32;backward=cpu_backward_sums_first". An op that is not named
// is untouched. Guards nest; the innermost that names an op wins, then the environment.
// Throws std::invalid_argument on text that does not parse or names a variant that does not serve
// its op. Whether the config can run is known only at the call: one that cannot makes the call
// throw, it is never ignored.
class ForcedConfigGuard {
 public:
  explicit ForcedConfigGuard(std::string_view text);
  ~ForcedConfigGuard();
  ForcedConfigGuard(const ForcedConfigGuard&) = delete;
  ForcedConfigGuard& operator=(const ForcedConfigGuard&) = delete;

 private:
  std::uint64_t id_;
};

// What is forced for `op` now. HIPNORM_FORCE_CONFIG is read once, at the first call; throws
// std::invalid_argument when it does not parse (at every call: it is never ignored).
std::optional<PartialConfig> forced_config(Op op);

// Changes whenever a guard comes or goes: a memo of selections is void then.
std::uint64_t forced_generation();

}  // namespace hipnorm
