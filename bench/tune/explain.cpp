// hipnorm-tune explain: what dispatch decides for a shape, and why.
#include <fmt/format.h>

#include <algorithm>

#include "bench/tune/cell.h"
#include "bench/tune/commands.h"
#include "bench/tune/workbench.h"
#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/known_devices.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/select.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm::tune {
namespace {

constexpr std::size_t kRunnersUp = 5;

std::string cost_of(const Config& config, const Problem& problem, const Device& device) {
  const Cost cost = predict(config, problem, device);
  return fmt::format("{:10.1f} us {:10.1f} MB", cost.seconds * 1e6, cost.bytes / 1e6);
}

// Why no config of the variant is among the candidates: the reason for the first that one would
// think of, every parameter at its least.
std::string refusal(std::size_t variant, const Problem& problem, const Device& device) {
  Config config{.variant = static_cast<Variant>(variant)};
  for (const ConfigField& field : kConfigFields) {
    config.*field.value = (variants()[variant].*field.limits).low;
  }
  return validate(config, problem, device).value_or("could run, but is not worth a try here");
}

void explain_one(const TableKey& cell, const Device& device) {
  const Problem problem = problem_of(cell);
  const Selection selection = select(problem, device);
  const std::vector<Config> ranked = candidates(problem, device);
  const double floor_bytes = (problem.is_backward() ? 3.0 : 2.0) * double(problem.tensor_bytes());
  fmt::print("{} on {}\n", to_string(cell), device.arch);
  fmt::print("  floor      {:10.1f} us {:10.1f} MB  every byte once\n",
             device.bandwidth > 0 ? floor_bytes / device.bandwidth * 1e6 : 0, floor_bytes / 1e6);
  fmt::print("  chosen     {}  {}\n", cost_of(selection.config, problem, device),
             describe(selection));
  const Plan& p = selection.plan;
  fmt::print("             tasks={} partial_rows={} workspace={} bytes", p.tasks, p.partial_rows,
             p.workspace_bytes);
  if (device.kind == DeviceKind::gpu) {
    fmt::print(" threads={} vectors={} lds={} bytes", p.threads, p.vectors, p.lds_bytes);
  }
  fmt::print("\n");
  std::size_t shown = 0;
  for (const Config& config : ranked) {
    if (config == selection.config || on_request_only(config.variant)) continue;
    if (shown++ == kRunnersUp) break;
    fmt::print("  runner-up  {}  {}\n", cost_of(config, problem, device), to_string(config));
  }
  for (std::size_t v = 0; v < variants().size(); ++v) {
    const VariantInfo& variant = variants()[v];
    if (variant.kind != device.kind || !serves(variant, problem.op)) continue;
    const auto mine = std::find_if(ranked.begin(), ranked.end(), [&](const Config& config) {
      return config.variant == static_cast<Variant>(v);
    });
    if (mine == ranked.end()) {
      fmt::print("  refused    {}: {}\n", variant.name, refusal(v, problem, device));
    } else if (static_cast<Variant>(v) != selection.config.variant) {
      // What runs on request only may well be predicted faster.
      fmt::print("  {:<10} {}  {}\n",
                 on_request_only(static_cast<Variant>(v)) ? "on request" : "slower",
                 cost_of(*mine, problem, device), to_string(*mine));
    }
  }
}

}  // namespace

const Device& device_of(const std::string& name) {
  // Of several with one architecture the first: H200 for sm_90.
  for (const KnownDevice& known : known_devices()) {
    if (name == known.name || name == known.device.arch) return known.device;
  }
  return *machine(name).device;
}

int explain(const ExplainOptions& options) {
  const Device& device = device_of(options.device);
  for (const TableKey& cell : options.cells) explain_one(cell, device);
  return 0;
}

}  // namespace hipnorm::tune
