#include "bench/tune/search_space.h"

#include <algorithm>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm::tune {
namespace {

// Far beyond what the model errs (select.cpp counts 1.4 as twice that).
constexpr double kPredictedTooSlow = 3;

// Block sizes: multiples of the wave that leave a GPU's registers evenly shared, and the powers of
// two.
constexpr int kThreads[] = {64,  96,  128, 192, 224, 256, 288, 320, 352,
                            384, 448, 480, 512, 576, 608, 640, 768, 1024};

void add(std::vector<int>& values, int value, const Limits& limits) {
  if (value >= limits.low && value <= limits.high &&
      std::find(values.begin(), values.end(), value) == values.end()) {
    values.push_back(value);
  }
}

// What a sweep tries for one parameter. `seen`: the values that dispatch's own candidates have.
std::vector<int> values_of(const ConfigField& field, const Limits& limits,
                           const std::vector<int>& seen) {
  if (limits.high == 0) return {0};
  std::vector<int> values;
  if (field.name == "threads") {
    for (const int threads : kThreads) add(values, threads, limits);
  } else if (field.name == "parts") {
    // How many parts are worth while depends on the device; the neighbours of what it is known for.
    for (const int parts : seen) {
      for (const int near : {parts, 2 * parts, parts / 2, 4 * parts}) add(values, near, limits);
    }
  } else if (limits.high <= 16) {
    for (int value = limits.low; value <= limits.high; ++value) add(values, value, limits);
  } else {
    for (int value = std::max(1, limits.low); value <= limits.high; value *= 2) {
      add(values, value, limits);
    }
  }
  for (const int value : seen) add(values, value, limits);
  if (values.empty()) values.push_back(limits.low);
  return values;
}

struct Predicted {
  double seconds;
  Config config;
};

}  // namespace

std::vector<Config> search_space(const Problem& problem, const Device& device, std::size_t most) {
  const std::vector<Config> known = candidates(problem, device);
  std::vector<Predicted> all;
  const auto add = [&](const Config& config) {
    all.push_back({predict(config, problem, device).seconds, config});
  };
  for (const Config& config : known) add(config);
  for (std::size_t v = 0; v < variants().size(); ++v) {
    const VariantInfo& variant = variants()[v];
    if (variant.kind != device.kind || !serves(variant, problem.op)) continue;
    std::vector<Config> configs = {{.variant = static_cast<Variant>(v)}};
    for (const ConfigField& field : kConfigFields) {
      std::vector<int> seen;
      for (const Config& config : known) {
        if (config.variant == static_cast<Variant>(v)) seen.push_back(config.*field.value);
      }
      std::sort(seen.begin(), seen.end());
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      std::vector<Config> longer;
      for (const int value : values_of(field, variant.*field.limits, seen)) {
        for (Config config : configs) {
          config.*field.value = value;
          longer.push_back(config);
        }
      }
      configs = std::move(longer);
    }
    for (const Config& config : configs) {
      if (std::find(known.begin(), known.end(), config) != known.end()) continue;
      if (!validate(config, problem, device)) add(config);
    }
  }
  // Stable: of equals those that dispatch knows come first, in its order.
  std::stable_sort(all.begin(), all.end(),
                   [](const Predicted& a, const Predicted& b) { return a.seconds < b.seconds; });
  const Config chosen = default_config(problem, device);
  const double longest = kPredictedTooSlow * predict(chosen, problem, device).seconds;
  std::vector<Config> list = {chosen};
  for (const Predicted& p : all) {
    if (list.size() >= most || p.seconds > longest) break;
    if (p.config != chosen) list.push_back(p.config);
  }
  return list;
}

}  // namespace hipnorm::tune
