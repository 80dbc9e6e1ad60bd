// The CSV files of configs/ as text, put into the library by cmake/HipnormEmbedConfigs.cmake.
#pragma once

#include <span>
#include <string_view>

namespace hipnorm {

struct EmbeddedFile {
  std::string_view name;  // "configs/sm_90.csv"
  std::string_view text;
};
std::span<const EmbeddedFile> embedded_configs();

}  // namespace hipnorm
