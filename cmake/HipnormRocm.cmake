# The GPU kernels by ROCm's clang. HipnormGpu.cmake says what this file has to provide.
#
# HIPNORM_ROCM_ARCHITECTURES   what goes into every object, as one fat binary. Of the default, those
#   that the compiler knows (gfx950 wants ROCm 7).
# HIPNORM_ROCM_PATH            where ROCm lies; else ROCM_PATH or HIP_PATH in the environment,
#   /opt/rocm, /usr.
#
# Custom commands, not CMake's language HIP: that wants CMake 3.21 to have been taught the layout of
# the ROCm at hand, and CI's, Debian's own, it does not know. One path for all is one that CI tests.
set(architectures gfx90a gfx942 gfx950 gfx1100)  # MI200, MI300, MI350, RX 7900
set(HIPNORM_ROCM_ARCHITECTURES "${architectures}" CACHE STRING "Architectures of the ROCm build")
set(HIPNORM_ROCM_PATH "" CACHE PATH "Where ROCm lies; empty: ROCM_PATH, HIP_PATH, /opt/rocm, /usr")

set(needs "The ROCm build (HIPNORM_GPU=${HIPNORM_GPU}) needs ROCm ≥ 6.3")
if(HIPNORM_ROCM_PATH)
  set(places "${HIPNORM_ROCM_PATH}")
else()
  set(places "$ENV{ROCM_PATH}" "$ENV{HIP_PATH}" /opt/rocm /usr)
  list(FILTER places EXCLUDE REGEX "^$")
endif()
set(root "")
foreach(place IN LISTS places)
  if(EXISTS "${place}/include/hip/hip_version.h")
    set(root "${place}")
    break()
  endif()
endforeach()
if(NOT root)
  list(JOIN places ", " places)
  message(FATAL_ERROR "${needs}, and there is no include/hip/hip_version.h in ${places}: install "
    "AMD's packages hip-dev, rocprim-dev and rocm-llvm, and say where with -DHIPNORM_ROCM_PATH=… or "
    "ROCM_PATH; without GPU kernels: -DHIPNORM_GPU=none.")
endif()
file(STRINGS "${root}/include/hip/hip_version.h" lines
     REGEX "^#define HIP_VERSION_(MAJOR|MINOR) +[0-9]+")
string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
list(JOIN numbers "." HIPNORM_HIP_VERSION)

# Objects of another ROCm are stale.
if(NOT "${HIPNORM_ROCM_FOUND}" STREQUAL "${root} ${HIPNORM_HIP_VERSION}")
  unset(HIPNORM_HIP_COMPILER CACHE)
  unset(HIPNORM_HIP_LIBRARY CACHE)
  set(HIPNORM_ROCM_FOUND "${root} ${HIPNORM_HIP_VERSION}" CACHE INTERNAL "The ROCm in use")
endif()
set(HIPNORM_HIP_FLAGS "")  # what this ROCm needs beyond the flags below
set(HIPNORM_HIP_DEVICE_LIBRARIES "")  # a folder of them, where not ROCm's
set(HIPNORM_HIP_DEPENDS "")  # files that every object depends on because of them
if(HIPNORM_HIP_VERSION VERSION_LESS 5.3)
  include(HipnormOldHip)
elseif(HIPNORM_HIP_VERSION VERSION_LESS 6.3)
  message(FATAL_ERROR "${needs}; ${root} has HIP ${HIPNORM_HIP_VERSION}.")
else()
  find_program(HIPNORM_HIP_COMPILER NAMES amdclang++ clang++ NO_DEFAULT_PATH
               PATHS "${root}/lib/llvm/bin" "${root}/llvm/bin" "${root}/bin")
  if(NOT HIPNORM_HIP_COMPILER)
    message(FATAL_ERROR "${needs}; ${root} has no lib/llvm/bin/clang++: install AMD's package "
                        "rocm-llvm, or give -DHIPNORM_HIP_COMPILER=<clang++>.")
  endif()
endif()
if(NOT EXISTS "${root}/include/rocprim/rocprim_version.hpp")
  message(FATAL_ERROR "${needs}; ${root} has no include/rocprim: install AMD's package rocprim-dev "
                      "(Debian: librocprim-dev).")
endif()
# torch's wheels bring a HIP runtime of their own, whose streams are the ones that kernels are queued
# on: it has to be the only one in the process. Its major version is that of the headers.
if(HIPNORM_TORCH AND HIPNORM_TORCH_BUILD STREQUAL "rocm")
  file(GLOB of_torch "${TORCH_DIR}/lib/libamdhip64.so*")
  if(of_torch)
    list(GET of_torch 0 HIPNORM_HIP_LIBRARY)
  endif()
  if(EXISTS "${TORCH_DIR}/version.py")
    file(STRINGS "${TORCH_DIR}/version.py" line REGEX "^hip[: ].*'[0-9]+\\.[0-9]+")
    string(REGEX MATCH "[0-9]+\\.[0-9]+" of_torch "${line}")
    string(REGEX MATCH "^[0-9]+" wanted "${of_torch}")
    string(REGEX MATCH "^[0-9]+" found "${HIPNORM_HIP_VERSION}")
    if(wanted AND NOT wanted EQUAL found)
      message(FATAL_ERROR "torch in ${TORCH_DIR} was built with HIP ${of_torch}, but ${root} has "
        "HIP ${HIPNORM_HIP_VERSION}: expected the same major version. HIPNORM_ROCM_PATH or ROCM_PATH "
        "may name another ROCm.")
    endif()
  endif()
endif()
find_library(HIPNORM_HIP_LIBRARY amdhip64 HINTS "${root}/lib" "${root}/lib64")
if(NOT HIPNORM_HIP_LIBRARY)
  message(FATAL_ERROR "${needs}; libamdhip64.so is not in ${root}/lib: install AMD's package "
                      "hip-runtime-amd (Debian: libamdhip64-dev).")
endif()
set(HIPNORM_GPU_RUNTIME "${HIPNORM_HIP_LIBRARY}")

set(HIPNORM_GPU_ARCHITECTURES "")
foreach(arch IN LISTS HIPNORM_ROCM_ARCHITECTURES)
  execute_process(COMMAND "${HIPNORM_HIP_COMPILER}" -x c -target amdgcn-amd-amdhsa -mcpu=${arch}
                          -nogpulib -fsyntax-only /dev/null
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    list(APPEND HIPNORM_GPU_ARCHITECTURES ${arch})
  elseif(HIPNORM_ROCM_ARCHITECTURES STREQUAL "${architectures}")
    message(STATUS "${HIPNORM_HIP_COMPILER} does not know ${arch}: no kernels for it.")
  else()
    message(FATAL_ERROR "HIPNORM_ROCM_ARCHITECTURES has '${arch}', which ${HIPNORM_HIP_COMPILER} "
                        "does not know.")
  endif()
endforeach()
if(NOT HIPNORM_GPU_ARCHITECTURES)
  message(FATAL_ERROR "HIPNORM_ROCM_ARCHITECTURES names nothing; expected, for instance, gfx942.")
endif()
list(JOIN HIPNORM_GPU_ARCHITECTURES " " for)
message(STATUS "ROCm kernels by ${HIPNORM_HIP_COMPILER} with HIP ${HIPNORM_HIP_VERSION} in ${root} "
               "for ${for}")

# Optimised whatever the build type, as all kernels are.
list(TRANSFORM HIPNORM_GPU_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE targets)
list(PREPEND HIPNORM_HIP_FLAGS
  -x hip ${targets} --rocm-path=${root} -std=c++20 -O3 -DNDEBUG -fPIC -fvisibility=hidden
  -fvisibility-inlines-hidden -Wall -Wextra -Wshadow)
if(HIPNORM_STRICT)
  list(APPEND HIPNORM_HIP_FLAGS -Werror)
endif()

function(hipnorm_gpu_objects name)
  cmake_parse_arguments(ARG "" "FOR" "SOURCES;DEFINITIONS" ${ARGN})
  list(TRANSFORM ARG_DEFINITIONS PREPEND -D)
  set(libraries "")
  if(HIPNORM_HIP_DEVICE_LIBRARIES)  # a relative path is the same in every clone, for ccache
    file(RELATIVE_PATH libraries "${CMAKE_CURRENT_BINARY_DIR}" "${HIPNORM_HIP_DEVICE_LIBRARIES}")
    set(libraries "--rocm-device-lib-path=${libraries}")
  endif()
  set(launcher "")
  if(HIPNORM_CCACHE)
    set(launcher "${HIPNORM_CCACHE}")
  endif()
  set(objects "")
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(source "${source}" ABSOLUTE)
    get_filename_component(stem "${source}" NAME_WE)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.hip/${stem}.o")
    file(RELATIVE_PATH shown "${PROJECT_BINARY_DIR}" "${object}")
    add_custom_command(OUTPUT "${object}"
      COMMAND ${launcher} "${HIPNORM_HIP_COMPILER}" ${HIPNORM_HIP_FLAGS} ${libraries}
              ${ARG_DEFINITIONS} "-I${PROJECT_SOURCE_DIR}" -MD -MT "${object}" -MF "${object}.d"
              -c "${source}" -o "${object}"
      DEPENDS "${source}" ${HIPNORM_HIP_DEPENDS} DEPFILE "${object}.d"
      COMMENT "Building HIP object ${shown}" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${name}.hip")
  if(ARG_FOR)
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(${ARG_FOR} PRIVATE ${objects})
  else()
    add_custom_target(${name} DEPENDS ${objects})
  endif()
endfunction()
