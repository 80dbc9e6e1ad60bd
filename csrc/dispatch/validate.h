// validate(): the only judge of whether a config may run a problem on a device.
#pragma once

#include <optional>
#include <string>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/device.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm {

// Whether a problem is one that any config could run; else the reason.
std::optional<std::string> check_problem(const Problem& problem);

// nullopt: valid. Otherwise the reason, as a person would say it: "cpu_forward_row is no backward
// variant", "vec_bytes=64, but cpu-avx2 has at most 32". Allocates only when it refuses.
std::optional<std::string> validate(const Config& config, const Problem& problem,
                                    const Device& device);

}  // namespace hipnorm
