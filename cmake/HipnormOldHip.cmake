# Makes Debian 12's HIP 5.2, rocPRIM 5.3 and device libraries, which predate gfx942 and gfx950, work
# with clang 22. CI builds so; a current ROCm needs none of this and never comes here. Nothing that
# is built so has been run. Included by HipnormRocm.cmake; sets HIPNORM_HIP_COMPILER and
# HIPNORM_HIP_DEVICE_LIBRARIES, and adds to HIPNORM_HIP_FLAGS and HIPNORM_HIP_DEPENDS.
set(needs "${needs}, or to compile only, as CI does, Debian 12's HIP 5.2 with clang ≥ 20")
find_program(HIPNORM_HIP_COMPILER NAMES clang++-22 clang++-21 clang++-20)
if(NOT HIPNORM_HIP_COMPILER)
  message(FATAL_ERROR "${needs}; ${root} has HIP ${HIPNORM_HIP_VERSION}, and there is no such clang "
                      "on the PATH: install clang-22, lld-22 and clang-tools-22.")
endif()
get_filename_component(tools "${HIPNORM_HIP_COMPILER}" REALPATH)
get_filename_component(tools "${tools}" DIRECTORY)
foreach(tool_package lld/lld-22 clang-offload-bundler/clang-tools-22)
  get_filename_component(tool "${tool_package}" DIRECTORY)
  get_filename_component(package "${tool_package}" NAME)
  if(NOT EXISTS "${tools}/${tool}")
    message(FATAL_ERROR "${needs}; ${tools} has no ${tool}: install ${package}.")
  endif()
endforeach()
file(GLOB bitcode "${root}/lib/*/amdgcn/bitcode/*.bc")
if(NOT bitcode)
  message(FATAL_ERROR "${needs}; ${root}/lib has no amdgcn/bitcode: install rocm-device-libs.")
endif()

# A folder of device libraries: Debian's, and one file of our own for each architecture, over
# Debian's where it has one. old_hip/device_library.ll.in says why.
# ccache knows the folder by its name alone: another content is another folder.
set(template "${CMAKE_CURRENT_LIST_DIR}/old_hip/device_library.ll.in")
file(SHA256 "${template}" version)
string(SUBSTRING "${version}" 0 12 version)
set(folder "${PROJECT_BINARY_DIR}/device_libraries-${version}")
file(REMOVE_RECURSE "${folder}")
file(MAKE_DIRECTORY "${folder}")
foreach(file IN LISTS bitcode)
  get_filename_component(name "${file}" NAME)
  file(CREATE_LINK "${file}" "${folder}/${name}" SYMBOLIC)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${template}")
foreach(arch IN LISTS HIPNORM_ROCM_ARCHITECTURES)
  # gfx90a is 9.0.10 and becomes 9010: two digits for the minor version and the stepping each.
  if(NOT arch MATCHES "^gfx([0-9]+)([0-9])([0-9a-f])$")
    message(FATAL_ERROR "HIPNORM_ROCM_ARCHITECTURES has '${arch}'; expected, for instance, gfx90a.")
  endif()
  math(EXPR ISA_VERSION
       "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 100 + 0x${CMAKE_MATCH_3}")
  string(SUBSTRING "${arch}" 3 -1 name)
  configure_file("${template}" "${folder}/${name}.ll" @ONLY)
  file(REMOVE "${folder}/oclc_isa_version_${name}.bc")
  execute_process(
    COMMAND "${HIPNORM_HIP_COMPILER}" -x ir -nogpulib -target amdgcn-amd-amdhsa -emit-llvm
            -c "${folder}/${name}.ll" -o "${folder}/oclc_isa_version_${name}.bc"
    RESULT_VARIABLE failed ERROR_VARIABLE complaint)
  if(failed)
    message(FATAL_ERROR "${HIPNORM_HIP_COMPILER} does not take ${folder}/${name}.ll: ${complaint}")
  endif()
endforeach()

set(header "${CMAKE_CURRENT_LIST_DIR}/old_hip/compat.h")
set(HIPNORM_HIP_DEVICE_LIBRARIES "${folder}")
list(APPEND HIPNORM_HIP_FLAGS -mcode-object-version=5 -include "${header}")
list(APPEND HIPNORM_HIP_DEPENDS "${header}" "${template}")
