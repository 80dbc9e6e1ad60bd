#include "csrc/dispatch/validate.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "csrc/dispatch/gpu.h"
#include "csrc/dispatch/text.h"
#include "csrc/dispatch/workspace.h"

namespace hipnorm {
namespace {

// Elements of the largest problem: with 8 bytes an element two tensors take 2^62 bytes, so
// that no offset or sum of offsets overflows. The address space of a machine is 2^48 to 2^57.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;

// Tasks of one launch. Far beyond what balances the load of any machine; each costs a call.
constexpr std::int64_t kMaxTasks = 65536;

// A workspace that dwarfs the tensors is a mistake in `parts` or `split`, and would fail to
// allocate far from its cause. Up to 256 MiB nobody is hurt; beyond that it may be 4 × the tensors.
// One part and one strip always stay below that, so that every op has a config that may run: 12
// bytes a column (f32 weight and two partial sums) against 4 × 6 of f16 tensors, and the row sums'
// 16 bytes a row against 4 × 6 where N = 1.
constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kFreeWorkspace = 256 * kMiB;
constexpr double kWorkspaceRatio = 4;

bool is_power_of_two(int value) { return value > 0 && std::has_single_bit(unsigned(value)); }

bool weight_fits(const Problem& problem) {
  const bool needed =
      problem.has_weight || problem.has_bias || (problem.is_backward() && problem.grads.columns());
  if (problem.weight == DType::none) return !needed;
  return problem.weight == problem.x || problem.weight == accumulate_type(problem.x);
}

// Each parameter by itself.
std::optional<std::string> check_fields(const Config& config, const VariantInfo& variant) {
  for (const ConfigField& field : kConfigFields) {
    const Limits limits = variant.*field.limits;
    const int value = config.*field.value;
    if (value >= limits.low && value <= limits.high) continue;
    if (limits.high == 0) {
      return concat(field.name, '=', value, ", but ", variant.name, " has no such parameter");
    }
    return concat(field.name, '=', value, ", but ", variant.name, " takes ", limits.low, " to ",
                  limits.high);
  }
  for (const ConfigField& field : {kConfigFields[1], kConfigFields[2]}) {
    const int value = config.*field.value;
    if (value != 0 && !is_power_of_two(value)) {
      return concat(field.name, '=', value, ", but must be a power of two");
    }
  }
  return std::nullopt;
}
static_assert(kConfigFields[1].name == "rows_per_block" && kConfigFields[2].name == "vec_bytes");

// The CPU's own: vectors and strips of columns, none of which may be empty.
std::optional<std::string> check_cpu(const Config& config, const Problem& problem,
                                     const Device& device) {
  // No processor we build for has vectors narrower than 16 bytes.
  const int widest = std::max(16, device.max_vec_bytes);
  if (config.vec_bytes > widest) {
    return concat("vec_bytes=", config.vec_bytes, ", but ", device.arch, " has at most ", widest);
  }
  const std::int64_t groups = std::max<std::int64_t>(1, column_groups(problem.cols));
  if (config.split > groups) {
    return concat("split=", config.split, ", but ", problem.cols, " cols are only ", groups,
                  " groups of ", kColumnGroup);
  }
  if (static_cast<std::int64_t>(config.parts) * config.split > kMaxTasks) {
    return concat("parts=", config.parts, " × split=", config.split, ", but at most ", kMaxTasks,
                  " tasks may run");
  }
  return std::nullopt;
}

// No part may be empty, and the workspace must be in proportion.
std::optional<std::string> check_sizes(const Config& config, const Problem& problem) {
  if (config.parts > std::max<std::int64_t>(1, problem.rows)) {
    return concat("parts=", config.parts, ", but there are only ", problem.rows, " rows");
  }
  const double bytes = workspace<double>(config, problem, config.parts).total();
  const double tensors = (problem.is_backward() ? 3.0 : 2.0) * static_cast<double>(problem.rows) *
                         static_cast<double>(problem.cols) * size_of(problem.x);
  if (bytes > kFreeWorkspace && bytes > kWorkspaceRatio * tensors) {
    return concat(
        "parts=", config.parts, ", split=", config.split, ": the workspace would take ",
        static_cast<std::int64_t>(bytes / kMiB) + 1, " MiB, but at most ",
        static_cast<std::int64_t>(std::max(kFreeWorkspace, kWorkspaceRatio * tensors) / kMiB),
        " are allowed");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> check_problem(const Problem& problem) {
  if (problem.rows < 0 || problem.cols < 0) {
    return concat("rows and cols must not be negative, but are ", problem.rows, " and ",
                  problem.cols);
  }
  if (problem.cols != 0 && problem.rows > kMaxElements / problem.cols) {
    return concat("rows × cols must be at most 2^58, but is ", problem.rows, " × ", problem.cols);
  }
  if (size_of(problem.x) == 0) {
    return concat("x must be f32, f16, bf16 or f64, but is ", to_string(problem.x));
  }
  if (!weight_fits(problem)) {
    return concat("weight, bias and their gradients must be ", to_string(problem.x), " or ",
                  to_string(accumulate_type(problem.x)), ", but are ", to_string(problem.weight));
  }
  if (!is_power_of_two(problem.alignment) || problem.alignment > 64) {
    return concat("alignment must be a power of two from 1 to 64, but is ", problem.alignment);
  }
  return std::nullopt;
}

std::optional<std::string> validate(const Config& config, const Problem& problem,
                                    const Device& device) {
  if (static_cast<std::size_t>(config.variant) >= variants().size()) {
    return concat("there is no variant number ", static_cast<int>(config.variant));
  }
  const VariantInfo& variant = info(config.variant);
  if (!serves(variant, problem.op)) {
    return concat(variant.name, " is no ", to_string(problem.op), " variant");
  }
  if (variant.kind != device.kind) {
    return concat(variant.name, " runs on the ", variant.kind == DeviceKind::cpu ? "CPU" : "GPU",
                  ", but ", device.arch, " is a ", device.kind == DeviceKind::cpu ? "CPU" : "GPU");
  }
  if (auto reason = check_problem(problem)) return reason;
  if (auto reason = check_fields(config, variant)) return reason;
  if (auto reason = check_sizes(config, problem)) return reason;
  return device.kind == DeviceKind::gpu ? validate_gpu(config, problem, device)
                                        : check_cpu(config, problem, device);
}

}  // namespace hipnorm
