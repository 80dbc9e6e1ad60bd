#include "csrc/dispatch/config.h"

#include <charconv>
#include <cstddef>
#include <optional>

#include "csrc/dispatch/text.h"

namespace hipnorm {
namespace {

bool has_field(const VariantInfo& variant, const ConfigField& field) {
  return (variant.*field.limits).high > 0;
}

// Prints the fields for which `wanted(index)` holds.
template <typename Wanted>
std::string print(const Config& config, Wanted wanted) {
  std::string text(info(config.variant).name);
  char separator = ':';
  for (std::size_t i = 0; i < std::size(kConfigFields); ++i) {
    if (!wanted(i)) continue;
    text += separator;
    text += kConfigFields[i].name;
    text += '=';
    text += std::to_string(config.*kConfigFields[i].value);
    separator = ',';
  }
  return text;
}

std::string field_names(const VariantInfo& variant) {
  std::string names;
  for (const ConfigField& field : kConfigFields) {
    if (has_field(variant, field)) names += concat(names.empty() ? "" : ", ", field.name);
  }
  return names;
}

std::optional<Variant> parse_variant(std::string_view name) {
  for (std::size_t i = 0; i < variants().size(); ++i) {
    if (variants()[i].name == name) return static_cast<Variant>(i);
  }
  return std::nullopt;
}

// One "name=value" into `out`; on failure the reason.
std::optional<std::string> parse_field(std::string_view text, const VariantInfo& variant,
                                       PartialConfig& out) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return concat("expected field=value after ", variant.name, ", but got '", text, "'");
  }
  const std::string_view name = text.substr(0, equals);
  const std::string_view digits = text.substr(equals + 1);
  for (std::size_t i = 0; i < std::size(kConfigFields); ++i) {
    const ConfigField& field = kConfigFields[i];
    if (field.name != name || !has_field(variant, field)) continue;
    if (out.given[i]) return concat("field '", name, "' is given twice");
    int value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc() || stop != end || value < 0) {
      return concat(name, " must be an integer from 0 to 2147483647, but is '", digits, "'");
    }
    out.config.*field.value = value;
    out.given[i] = true;
    return std::nullopt;
  }
  return concat(variant.name, " has no field '", name, "'; its fields are ", field_names(variant));
}

}  // namespace

std::string to_string(const Config& config) {
  const VariantInfo& variant = info(config.variant);
  return print(config, [&](std::size_t i) { return has_field(variant, kConfigFields[i]); });
}

std::string to_string(const PartialConfig& config) {
  return print(config.config, [&](std::size_t i) { return config.given[i]; });
}

bool parse_config(std::string_view text, PartialConfig& out, std::string& error) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::optional<Variant> variant = parse_variant(name);
  if (!variant) {
    std::string known;
    for (const VariantInfo& each : variants())
      known += concat(known.empty() ? "" : ", ", each.name);
    error = concat("unknown variant '", name, "'; expected one of ", known);
    return false;
  }
  PartialConfig parsed;
  parsed.config.variant = *variant;
  if (colon != std::string_view::npos) {
    std::string_view rest = text.substr(colon + 1);
    while (true) {
      const std::size_t comma = rest.find(',');
      if (auto reason = parse_field(rest.substr(0, comma), info(*variant), parsed)) {
        error = std::move(*reason);
        return false;
      }
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  out = parsed;
  return true;
}

}  // namespace hipnorm
