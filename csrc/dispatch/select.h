// select(): from a problem to the config that runs. Forced, else the table, else the default.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// The order in which they are asked. table: a row of this very shape; near: of a near one.
enum class Source : std::uint8_t { forced, table, near, chosen_default };
std::string_view to_string(Source source);  // chosen_default prints as "default"

struct Selection {
  Config config;
  Source source = Source::chosen_default;
  Plan plan;
};

// `device` must not change while it is in use: selections are remembered by its address.
// Microseconds when the problem is new, under 200 ns when it was seen before; from any thread. The
// memo is bounded. What it returns has passed validate() on this very problem.
// Throws std::invalid_argument when a forced config cannot apply, naming it, the problem and why,
// or when the file in HIPNORM_CONFIG_FILE cannot be used. With HIPNORM_LOG=1 prints one line on
// stderr for each problem new to a thread, at most 1000.
Selection select(const Problem& problem, const Device& device);

// "cpu_forward_row:rows_per_block=2,vec_bytes=64,parts=2,stream=1  source=default"
std::string describe(const Selection& selection);

}  // namespace hipnorm
