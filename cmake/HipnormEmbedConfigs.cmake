# hipnorm_embed_configs(OUTPUT): writes a C++ file that holds every CSV of configs/ as text. Editing,
# adding or removing a CSV makes the next build configure again.
#
# HIPNORM_CONFIGS_DIR   the folder to take them from: tables of one's own in place of the shipped
#   ones. A program's messages name them configs/<arch>.csv all the same.
set(HIPNORM_CONFIGS_DIR "${PROJECT_SOURCE_DIR}/configs" CACHE PATH
    "The folder whose CSV files are embedded as dispatch tables")

function(hipnorm_embed_configs output)
  if(NOT IS_DIRECTORY "${HIPNORM_CONFIGS_DIR}")
    message(FATAL_ERROR "HIPNORM_CONFIGS_DIR=${HIPNORM_CONFIGS_DIR} is no folder.")
  endif()
  file(GLOB files CONFIGURE_DEPENDS "${HIPNORM_CONFIGS_DIR}/*.csv")
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
  string(CONFIGURE [[// Made by cmake/HipnormEmbedConfigs.cmake from @HIPNORM_CONFIGS_DIR@/*.csv.
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
