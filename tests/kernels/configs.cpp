#include "tests/kernels/configs.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "csrc/dispatch/cost_model.h"
#include "csrc/dispatch/plan.h"
#include "csrc/dispatch/validate.h"
#include "tests/kernels/run.h"

namespace hipnorm::testing {
namespace {

constexpr Shape kSmall[] = {
    {1, 1},      // the least there is
    {7, 1},      // N = 1: y = bias, dX = dW = 0
    {3, 769},    // an odd tail after whole vectors of every width
    {5, 1000},   // 1000 = 15·64 + 40: the last group of columns is short
    {1000, 31},  // many rows, each shorter than a vector of 16-bit elements at 64 bytes
    {64, 64},    // one group of columns exactly
    {17, 127},   // one element short of two groups
    {2, 16},     // one vector
    {4, 65},     // a group and one element
    {9, 2},      // two elements: x̂ = ±1
    {259, 96},   // more rows than any rows_per_block, parts of unequal size
};
constexpr Shape kQuick[] = {{1, 1}, {7, 1}, {3, 769}, {37, 31}, {64, 64}, {17, 127}, {4, 65}};
constexpr Shape kLarge[] = {
    {2, 103008},  // the widest row of the seed shapes: sums in several blocks
    {33, 4097},   // one element past a block of sums
    {5, 8193},    // one element past a block of moments
    {1, 65536},   // one row: only its columns can be shared
    {4097, 48},   // long column sums
};
constexpr Shape kQuickLarge[] = {{2, 8193}, {301, 48}};
constexpr Shape kEmulated[] = {{1, 1}, {7, 1}, {3, 769}, {13, 31}, {17, 127}, {4, 65}};
constexpr Shape kEmulatedLarge[] = {{2, 8193}, {61, 48}};

constexpr Shape kPackets[] = {
    {1, 8},      // the least: one packet of 16-bit elements
    {13, 1032},  // one packet more than two on each lane of a wave of 64
    {9, 2048},   // whole slices
    {29, 520},   // many rows, a packet in the last slice
    {2, 6152},   // fewer rows than waves
};

std::vector<Kernel> kernels(bool (*serves)(const VariantInfo&), Op (*op_of)(const VariantInfo&)) {
  constexpr struct {
    DType x, weight;
  } kTypes[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                {DType::f16, DType::f16}, {DType::f16, DType::f32},   {DType::f64, DType::f64}};
  std::vector<Kernel> list;
  for (std::size_t i = 0; i < variants().size(); ++i) {
    const VariantInfo& variant = variants()[i];
    if (variant.kind != device().kind || !serves(variant)) continue;
    for (const auto& types : kTypes) {
      list.push_back({static_cast<Variant>(i), op_of(variant), types.x, types.weight});
    }
  }
  return list;
}

bool same(std::string_view name, const ConfigField& field) { return field.name == name; }

// Values of one parameter that are combined.
std::vector<int> values_of(const ConfigField& field, const VariantInfo& variant) {
  const Limits limits = variant.*field.limits;
  if (limits.high == 0) return {0};
  if (same("threads", field)) {
    std::vector<int> values;
    // 192: no power of two; 480: neither, and not a whole block of any kernel.
    for (const int value : {64, 128, 192, 256, 480, 512, 1024}) {
      // The emulator takes a thread's time for every thread, whether it has a column or not.
      if (emulated() && value > 256) break;
      if (value >= limits.low && value <= limits.high) values.push_back(value);
    }
    return values;
  }
  if (same("vec_bytes", field)) return vector_widths();
  std::vector<int> values;
  for (const int value : {0, 1, 2, 3, 4, 5, 8}) {
    const bool power = (value & (value - 1)) == 0;
    if (value < limits.low || value > limits.high) continue;
    if (same("rows_per_block", field) && !power) continue;
    if (value == 4 && !same("rows_per_block", field)) continue;
    values.push_back(value);
  }
  if (same("rows_per_block", field)) {
    for (int value = 16; value <= limits.high; value *= 2) values.push_back(value);
  }
  return values;
}

std::vector<Config> every_combination(Variant variant) {
  std::vector<Config> configs = {Config{.variant = variant}};
  for (const ConfigField& field : kConfigFields) {
    std::vector<Config> longer;
    for (const Config& config : configs) {
      for (const int value : values_of(field, info(variant))) {
        longer.push_back(config);
        longer.back().*field.value = value;
      }
    }
    configs = std::move(longer);
  }
  return configs;
}

// A setting as `few` names it, brought into the variant's limits.
Config setting(Variant variant, int vec_bytes, int rows_per_block, int split, int parts,
               int stream) {
  const VariantInfo& v = info(variant);
  const auto within = [](Limits limits, int value) {
    return limits.high == 0 ? 0 : std::clamp(value, limits.low, limits.high);
  };
  return {.variant = variant,
          .rows_per_block = within(v.rows_per_block, rows_per_block),
          .vec_bytes = vec_bytes,
          .split = within(v.split, split),
          .parts = within(v.parts, parts),
          .stream = within(v.stream, stream)};
}

// `count` of the configs, spread evenly; which, is the problem's luck.
std::vector<Config> some_of(std::vector<Config> configs, const Problem& problem,
                            std::size_t count) {
  if (configs.size() <= count) return configs;
  std::uint64_t luck = static_cast<std::uint64_t>(problem.rows) * 0x9E3779B97F4A7C15u +
                       static_cast<std::uint64_t>(problem.cols);
  for (const int value : {static_cast<int>(problem.x), static_cast<int>(problem.weight),
                          problem.alignment, int{problem.has_weight}, int{problem.has_bias},
                          int{problem.grads.dx}, int{problem.grads.columns()}}) {
    luck = (luck ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
    luck ^= luck >> 32;
  }
  std::vector<Config> some;
  for (std::size_t i = 0; i < count; ++i) {
    some.push_back(configs[(luck + i * configs.size() / count) % configs.size()]);
  }
  return some;
}

// Whether the device can run it. A persistent kernel of which not one block or cluster fits, by the
// runtime's word, is valid by the formulas that validate() knows.
bool runs(const Config& config, const Problem& problem) {
  return !validate(config, problem, device()) && plan(config, problem, device()).tasks > 0;
}

std::vector<Config> gpu_configs(Variant variant, const Problem& problem, Effort effort) {
  std::vector<Config> configs = every_combination(variant);
  std::erase_if(configs, [&](const Config& config) { return !runs(config, problem); });
  switch (effort) {
    case Effort::one: return some_of(std::move(configs), problem, 1);
    case Effort::few: return some_of(std::move(configs), problem, emulated() ? 2 : 5);
    case Effort::many: break;
  }
  return some_of(std::move(configs), problem, emulated() ? 8 : 200);
}

}  // namespace

bool quick() {
  static const bool value = [] {
    const char* text = std::getenv("HIPNORM_TEST_QUICK");
    return emulated() || (text != nullptr && *text != '\0' && std::string_view(text) != "0");
  }();
  return value;
}

std::vector<Kernel> forward_kernels() {
  return kernels([](const VariantInfo& v) { return v.forward; },
                 [](const VariantInfo&) { return Op::forward; });
}

std::vector<Kernel> backward_kernels() {
  return kernels([](const VariantInfo& v) { return v.backward_fused || v.backward_two_kernel; },
                 [](const VariantInfo& v) {
                   return v.backward_fused ? Op::backward_fused : Op::backward_two_kernel;
                 });
}

std::vector<Kernel> affordable(std::vector<Kernel> list) {
  if (!emulated()) return list;
  std::erase_if(list, [](const Kernel& k) {
    return (k.x == DType::bf16 && k.weight == DType::bf16) ||
           (k.x == DType::f16 && k.weight == DType::f32);
  });
  return list;
}

std::vector<Kernel> only(std::vector<Kernel> list, DType x, DType weight) {
  std::erase_if(list, [=](const Kernel& k) { return k.x != x || k.weight != weight; });
  return list;
}

std::string name_of(const Kernel& kernel) {
  return std::string(info(kernel.variant).name) + '_' + std::string(to_string(kernel.x)) + '_' +
         std::string(to_string(kernel.weight));
}

std::vector<int> vector_widths() {
  std::vector<int> widths;
  for (int width = 16; width <= std::max(16, device().max_vec_bytes); width *= 2) {
    widths.push_back(width);
  }
  return widths;
}

std::vector<Config> configs_for(Variant variant, const Problem& problem, Effort effort) {
  if (info(variant).kind == DeviceKind::gpu) return gpu_configs(variant, problem, effort);
  std::vector<Config> configs;
  if (effort == Effort::many) {
    configs = every_combination(variant);
  } else {
    for (const int width : vector_widths()) {
      configs.push_back(setting(variant, width, 2, 2, 2, 1));
      configs.push_back(setting(variant, width, 1, 1, 1, 0));
      if (effort == Effort::one) continue;
      configs.push_back(setting(variant, width, 4, 3, 3, 0));
      configs.push_back(setting(variant, width, 8, 1, 5, 1));
      configs.push_back(setting(variant, width, 4, 5, 1, 1));
    }
  }
  std::erase_if(configs, [&](const Config& config) {
    return validate(config, problem, device()).has_value();
  });
  if (effort == Effort::one) {  // the first that is valid, of each width
    std::vector<Config> first;
    for (const Config& config : configs) {
      if (first.empty() || first.back().vec_bytes != config.vec_bytes) first.push_back(config);
    }
    return first;
  }
  std::vector<Config> distinct;
  for (const Config& config : configs) {
    if (std::find(distinct.begin(), distinct.end(), config) == distinct.end()) {
      distinct.push_back(config);
    }
  }
  return distinct;
}

std::vector<Config> candidates_for(const Problem& problem) {
  std::vector<Config> configs = candidates(problem, device());
  if (device().kind == DeviceKind::cpu) return configs;
  std::erase_if(configs, [&](const Config& config) { return !runs(config, problem); });
  return some_of(std::move(configs), problem, emulated() ? 4 : 60);
}

std::int64_t expanded_cols() { return device().kind == DeviceKind::gpu ? 520 : 515; }

std::span<const Shape> small_shapes() {
  if (emulated()) return kEmulated;
  return quick() ? std::span<const Shape>(kQuick) : std::span<const Shape>(kSmall);
}
std::span<const Shape> packet_shapes() { return kPackets; }
std::span<const Shape> large_shapes() {
  if (emulated()) return kEmulatedLarge;
  return quick() ? std::span<const Shape>(kQuickLarge) : std::span<const Shape>(kLarge);
}

}  // namespace hipnorm::testing
