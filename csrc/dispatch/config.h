// Config: which variant runs, and with what parameters. Named values, never an index into a list.
#pragma once

#include <iterator>
#include <string>
#include <string_view>

#include "kernels/variants.h"

namespace hipnorm {

// A parameter that the variant does not have (limits {0, 0} in kernels/variants.h) is 0.
struct Config {
  Variant variant{};
  int threads = 0;
  int rows_per_block = 0;
  int vec_bytes = 0;
  int split = 0;
  int parts = 0;
  int stages = 0;
  int stream = 0;
  friend bool operator==(const Config&, const Config&) = default;
};

// The parameters by name, in the order in which they are printed.
struct ConfigField {
  std::string_view name;
  int Config::* value;
  Limits VariantInfo::* limits;
};
inline constexpr ConfigField kConfigFields[] = {
    {"threads", &Config::threads, &VariantInfo::threads},
    {"rows_per_block", &Config::rows_per_block, &VariantInfo::rows_per_block},
    {"vec_bytes", &Config::vec_bytes, &VariantInfo::vec_bytes},
    {"split", &Config::split, &VariantInfo::split},
    {"parts", &Config::parts, &VariantInfo::parts},
    {"stages", &Config::stages, &VariantInfo::stages},
    {"stream", &Config::stream, &VariantInfo::stream},
};

// "cpu_backward_row:rows_per_block=2,vec_bytes=64,parts=2,stream=1"; only the variant's own fields.
std::string to_string(const Config& config);

// A config as a person writes it: a variant, and any of its fields. Fields left out are free.
struct PartialConfig {
  Config config;
  bool given[std::size(kConfigFields)] = {};  // in kConfigFields' order
};
// The variant and the given fields only, in the form that parse_config takes.
std::string to_string(const PartialConfig& config);
// Parses the form that to_string prints, fields in any order, each at most once. On failure returns
// false and says in `error` what was expected and what came.
bool parse_config(std::string_view text, PartialConfig& out, std::string& error);

}  // namespace hipnorm
