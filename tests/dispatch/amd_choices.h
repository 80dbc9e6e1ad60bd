// What dispatch chooses on AMD's GPUs for the seed shapes, predicted: nobody here has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/dispatch/config.h"
#include "csrc/dispatch/known_devices.h"
#include "csrc/dispatch/problem.h"

namespace hipnorm::test {

struct Choice {
  const KnownDevice* device = nullptr;
  Problem problem;  // bf16, contiguous
  Config config;    // the default
  double bytes = 0;
  double seconds = 0;
  double floor = 0;  // seconds: each byte once, from and to memory, at the rate of a copy
  // backward_group's best, where it takes the row.
  std::optional<Config> group;
  double group_seconds = 0;

  double ratio() const { return seconds / floor; }
  double group_ratio() const { return group_seconds / floor; }
};

// MI210, MI250X, MI300X, MI350X, RX 7900 XTX; forward and backward.
std::vector<Choice> amd_choices();

// docs/rocm-choices.md.
std::string amd_choices_page();

}  // namespace hipnorm::test
