#include "tests/dispatch/amd_choices.h"

#include <cstdio>

#include "csrc/dispatch/cost_model.h"
#include "tests/dispatch/problems.h"

namespace hipnorm::test {
namespace {

constexpr const char* kDevices[] = {"MI210", "MI250X", "MI300X", "MI350X", "RX 7900 XTX"};
constexpr std::int64_t kSeedShapes[][2] = {{512, 256},    {1152, 11776},  {2304, 16384},
                                           {2304, 36864}, {2304, 103008}, {4608, 40920}};

constexpr char kHead[] = R"(# What runs on AMD's GPUs, predicted

Written by `tests/update_docs.sh` from the cost model; a test fails where this page is not what the
model says. **Nothing here was measured**: no AMD GPU was at hand. On a GPU that a table in
`configs/` has rows for, the table decides instead.

The seed shapes, bf16, weight and bias; backward gives all three gradients. *Floor*: every byte once,
between the units and memory, at the rate that a copy reaches. *Ratio*: predicted time over the
floor's. *Group*: the best of `gpu_backward_group`, which is never the default; see below.

Assumptions, all of them in `csrc/dispatch/gpu_costs.h` and `known_devices.cpp`:

- a copy reaches 80 % of the data sheet's bandwidth (85 % on RDNA3);
- each launch costs 3 µs, and 3 µs more until its first data has come: at 512x256 that is all;
- what fits into three quarters of the Infinity Cache (256 MB; 96 on RX 7900 XTX) is read again at 10
  TB/s (2.5 times the copy's rate on others): the second reading of `gpu_backward_sums_first`, whose
  panels of rows are half of it, and the partial sums of dweight and dbias. MI200 has no such cache;
- row kernels for whole packets reach 97 % of the copy where their loads never pause; a sum over a
  block takes 0.6 µs, an exchange of sums between blocks 1.2 µs.
)";

constexpr char kTail[] = R"(
## Trying the group form

Its blocks wait for each other through memory, which only the hardware can prove. To see whether it is
right, and faster than the default:

```
build/rocm/tests/kernels/kernels_gpu_test --gtest_filter='*Group*'
HIPNORM_FORCE_CONFIG="backward=gpu_backward_group" bench/run.sh --direction backward
```

`hipnorm-tune sweep` tries it with all other candidates; where it wins, the table that `hipnorm-tune
promote` writes makes it the choice for these shapes.
)";

Choice choice_of(const KnownDevice& known, Op op, std::int64_t rows, std::int64_t cols) {
  Choice c;
  c.device = &known;
  c.problem = contiguous(op, DType::bf16, rows, cols);
  c.config = default_config(c.problem, known.device);
  const Cost cost = predict(c.config, c.problem, known.device);
  c.bytes = cost.bytes;
  c.seconds = cost.seconds;
  c.floor = (op == Op::forward ? 2.0 : 3.0) * static_cast<double>(c.problem.tensor_bytes()) /
            known.device.bandwidth;
  for (const Config& config : candidates(c.problem, known.device)) {
    if (config.variant != Variant::gpu_backward_group) continue;
    c.group = config;
    c.group_seconds = predict(config, c.problem, known.device).seconds;
    break;  // they come by their predictions
  }
  return c;
}

std::string row_of(const Choice& c) {
  char group[128] = "";
  if (c.group) {
    std::snprintf(group, sizeof group, "%.2f, %d × %d threads", c.group_ratio(), c.group->split,
                  c.group->threads);
  }
  char line[512];
  std::snprintf(line, sizeof line, "| %lldx%lld | %s | `%s` | %.1f | %.1f | %.1f | %.2f | %s |\n",
                static_cast<long long>(c.problem.rows), static_cast<long long>(c.problem.cols),
                c.problem.is_backward() ? "backward" : "forward", to_string(c.config).c_str(),
                c.bytes / 1e6, c.seconds * 1e6, c.floor * 1e6, c.ratio(), group);
  return line;
}

}  // namespace

std::vector<Choice> amd_choices() {
  std::vector<Choice> choices;
  for (const char* name : kDevices) {
    for (const KnownDevice& known : known_devices()) {
      if (known.name != name) continue;
      for (const Op op : {Op::forward, Op::backward}) {
        for (const auto& [rows, cols] : kSeedShapes) {
          choices.push_back(choice_of(known, op, rows, cols));
        }
      }
    }
  }
  return choices;
}

std::string amd_choices_page() {
  std::string page = kHead;
  const KnownDevice* device = nullptr;
  for (const Choice& c : amd_choices()) {
    if (c.device != device) {
      device = c.device;
      const Device& d = device->device;
      char title[256];
      std::snprintf(title, sizeof title,
                    "\n## %s\n\n%s, %d units, copy at %.2f TB/s.\n\n"
                    "| shape | | default | MB | µs | floor µs | ratio | group |\n"
                    "|---|---|---|---|---|---|---|---|\n",
                    std::string(device->name).c_str(), d.arch.c_str(), d.compute_units,
                    d.bandwidth / 1e12);
      page += title;
    }
    page += row_of(c);
  }
  return page + kTail;
}

}  // namespace hipnorm::test
