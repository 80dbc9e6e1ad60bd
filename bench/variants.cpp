// --list-variants.
#include <fmt/format.h>

#include "bench/run.h"
#include "csrc/dispatch/config.h"
#include "kernels/variants.h"

namespace hipnorm::bench {
namespace {

bool is_group(const VariantInfo& variant) {
  return variant.name == info(Variant::gpu_backward_group).name;
}
// The rings are filled by the copy engine of sm_90, and share rows over its clusters.
bool is_ring(const VariantInfo& variant) {
  return variant.kind == DeviceKind::gpu && variant.form == Form::split_row && !is_group(variant);
}

std::string where_it_applies(const VariantInfo& variant) {
  if (variant.kind == DeviceKind::cpu) return "any CPU";
  if (is_group(variant)) return "GPUs with cooperative launches; rows of whole packets, not f64";
  return is_ring(variant) ? "NVIDIA GPUs from sm_90 on; not f64"
                          : "NVIDIA GPUs from sm_80 on; the source is also AMD's";
}

// What was run, by the tests in the repository or by hand; not what ought to work.
std::string where_it_was_run(const VariantInfo& variant) {
  if (variant.kind == DeviceKind::cpu) return "x86-64 with AVX2 and AVX-512, and its portable form";
  if (is_group(variant)) return "emulator, waves of 32 and 64; never on a GPU";
  return is_ring(variant) ? "H200 (sm_90); emulator, waves of 32"
                          : "H200 (sm_90); emulator, waves of 32 and 64; never on an AMD GPU";
}

}  // namespace

void list_variants() {
  for (const VariantInfo& variant : variants()) {
    std::string ops;
    const auto add = [&ops](bool serves, const char* name) {
      if (serves) ops += fmt::format("{}{}", ops.empty() ? "" : ", ", name);
    };
    add(variant.forward, "forward");
    add(variant.backward_fused || variant.backward_two_kernel, "backward");
    add(variant.backward_fused, "backward_fused");
    add(variant.backward_two_kernel, "backward_two_kernel");
    std::string limits;
    for (const ConfigField& field : kConfigFields) {
      const auto [low, high] = variant.*field.limits;
      if (low == 0 && high == 0) continue;
      limits += fmt::format("{}{}={}..{}", limits.empty() ? "" : ", ", field.name, low, high);
    }
    fmt::print("{}\n  {}; {}\n  {}\n  {}\n  applies: {}\n  was run: {}\n", variant.name,
               variant.kind == DeviceKind::cpu ? "cpu" : "gpu", ops, limits, variant.summary,
               where_it_applies(variant), where_it_was_run(variant));
  }
}

}  // namespace hipnorm::bench
