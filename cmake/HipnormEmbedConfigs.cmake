# hipnorm_embed_configs(OUTPUT): writes a C++ file that holds every CSV of configs/ as text. Editing,
# adding or removing a CSV makes the next build configure again.
function(hipnorm_embed_configs output)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/configs/*.csv")
  set(entries "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" text)
    get_filename_component(name "${file}" NAME)
    # A string literal may have 64 KiB in some compilers: a piece a 16000 characters.
    set(pieces "")
    string(LENGTH "${text}" length)
    set(at 0)
    while(at LESS length)
      string(SUBSTRING "${text}" ${at} 16000 piece)
      string(APPEND pieces "R\"csv(${piece})csv\"\n")
      math(EXPR at "${at} + 16000")
    endwhile()
    string(APPEND entries "    {\"configs/${name}\",\n${pieces}},\n")
  endforeach()
  list(LENGTH files count)
  string(CONFIGURE [[// Made by cmake/HipnormEmbedConfigs.cmake from configs/*.csv.
#include "csrc/dispatch/embedded_configs.h"

#include <array>

namespace hipnorm {
namespace {
constexpr std::array<EmbeddedFile, @count@> kFiles{{
@entries@}};
}  // namespace
std::span<const EmbeddedFile> embedded_configs() { return kFiles; }
}  // namespace hipnorm
]] text @ONLY)
  file(CONFIGURE OUTPUT "${output}" CONTENT "${text}" @ONLY)
endfunction()
