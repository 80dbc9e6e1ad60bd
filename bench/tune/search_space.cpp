#include "bench/tune/search_space.h"

#include <algorithm>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/validate.h"

namespace hipnorm::tune {
namespace {

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
  std::vector<Config> leading = candidates(problem, device);
  std::vector<Predicted> all;
  const auto known = [&](const Config& config) {
    return std::find(leading.begin(), leading.end(), config) != leading.end();
  };
  for (std::size_t v = 0; v < variants().size(); ++v) {
    const VariantInfo& variant = variants()[v];
    if (variant.kind != device.kind || !serves(variant, problem.op)) continue;
    std::vector<Config> configs = {{.variant = static_cast<Variant>(v)}};
    for (const ConfigField& field : kConfigFields) {
      std::vector<int> seen;
      for (const Config& config : leading) {
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
      if (known(config) || validate(config, problem, device)) continue;
      all.push_back({predict(config, problem, device).seconds, config});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Predicted& a, const Predicted& b) { return a.seconds < b.seconds; });
  const double best = leading.empty() ? 0 : predict(leading.front(), problem, device).seconds;
  for (const Predicted& p : all) {
    if (best > 0 && p.seconds > kPredictedTooSlow * best) break;
    leading.push_back(p.config);
  }
  if (leading.size() > most) leading.resize(most);
  return leading;
}

}  // namespace hipnorm::tune
