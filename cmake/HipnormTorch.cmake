# Finds torch without torch's own CMake package, which demands the whole CUDA toolkit or ROCm SDK of
# GPU builds. Used when hipnorm is built, and by hipnormConfig.cmake when it is consumed.
#
# hipnorm_find_torch(ERROR) looks at TORCH_DIR (cache or environment: the folder that holds include/
# and lib/), else asks HIPNORM_PYTHON (default python3) where its torch lies. It sets
#   HIPNORM_TORCH_VERSION   2.13.0
#   HIPNORM_TORCH_BUILD     cpu, cuda or rocm
#   hipnorm::torch          imported target: libtorch_cpu, libc10, libtorch, one OpenMP runtime, and
#                           torch's include folders as system includes
# or ERROR, one text that says what was expected and what was found.
set(HIPNORM_TORCH_MINIMUM 2.11)  # the oldest release that csrc/ has been built and tested with

# ROOT: the torch folder that PYTHON would import, without importing it (an import takes seconds).
function(_hipnorm_ask_python python root error)
  # In the build folder: `python -c` looks for modules in its working directory first.
  execute_process(
    COMMAND "${python}" -c "
import importlib.util as u
spec = u.find_spec('torch')
print(spec.submodule_search_locations[0] if spec and spec.origin else '')"
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
    OUTPUT_VARIABLE found ERROR_VARIABLE complaint RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    string(REGEX REPLACE ".*\n" "" complaint "${complaint}")
    set(${error} "'${python}' could not be asked for it (${failed}${complaint})" PARENT_SCOPE)
  elseif(NOT found)
    set(${error} "'${python}' has no module torch" PARENT_SCOPE)
  else()
    file(TO_CMAKE_PATH "${found}" found)
    set(${root} "${found}" PARENT_SCOPE)
  endif()
endfunction()

# VERSION of the torch in ROOT, from its headers; empty when it has none.
function(_hipnorm_torch_version root version)
  set(${version} "" PARENT_SCOPE)
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines
           REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
      list(JOIN numbers "." joined)
      if(joined MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
        set(${version} "${joined}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# The OpenMP runtime of the torch in ROOT, as a file to link. The wheels bring their own libgomp, in
# some releases under a name of its own (libgomp-<hash>.so.1). `g++ -fopenmp` at link time would name
# the system's libgomp.so.1 instead: a second runtime with a second pool of threads, which
# torch.set_num_threads does not reach. Linking torch's file itself records the name that
# libtorch_cpu records, so the loader has only one to load, in Python and in a C++ program
# (tests/consumer checks /proc/self/maps in both). Empty when torch brings none: then libtorch_cpu
# uses the system's, and so do we.
function(_hipnorm_torch_openmp root library)
  file(GLOB found "${root}/lib/libgomp*.so*" "${root}/../torch.libs/libgomp*.so*")
  list(LENGTH found count)
  if(count GREATER 1 AND CMAKE_READELF)  # leftovers of another release: keep the one that is used
    execute_process(COMMAND "${CMAKE_READELF}" -d "${root}/lib/libtorch_cpu.so"
                    OUTPUT_VARIABLE dynamic ERROR_QUIET)
    foreach(file IN LISTS found)
      get_filename_component(name "${file}" NAME)
      string(FIND "${dynamic}" "[${name}]" position)
      if(NOT position EQUAL -1)
        set(found "${file}")
        break()
      endif()
    endforeach()
  endif()
  if(found)
    list(GET found 0 found)
  endif()
  set(${library} "${found}" PARENT_SCOPE)
endfunction()

function(hipnorm_find_torch error)
  set(${error} "" PARENT_SCOPE)
  set(HIPNORM_PYTHON "python3" CACHE STRING
      "The Python whose torch is used when TORCH_DIR is not set")
  set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "The torch folder that holds include/ and lib/")
  set(wanted "hipnorm needs torch ≥ ${HIPNORM_TORCH_MINIMUM}")

  # An answer of another Python is forgotten; a TORCH_DIR that a person gave is kept.
  if(NOT TORCH_DIR OR (HIPNORM_TORCH_ASKED AND NOT HIPNORM_TORCH_ASKED STREQUAL HIPNORM_PYTHON
                       AND TORCH_DIR STREQUAL HIPNORM_TORCH_ANSWER))
    _hipnorm_ask_python("${HIPNORM_PYTHON}" answer problem)
    if(problem)
      set(${error} "${wanted}, but TORCH_DIR is not set and ${problem}. Install torch, or give \
-DHIPNORM_PYTHON=<python with torch> or -DTORCH_DIR=<folder with include/ and lib/>." PARENT_SCOPE)
      return()
    endif()
    set(TORCH_DIR "${answer}" CACHE PATH "The torch folder that holds include/ and lib/" FORCE)
    set(HIPNORM_TORCH_ASKED "${HIPNORM_PYTHON}" CACHE INTERNAL "Who gave TORCH_DIR")
    set(HIPNORM_TORCH_ANSWER "${answer}" CACHE INTERNAL "The TORCH_DIR that it gave")
  endif()

  _hipnorm_torch_version("${TORCH_DIR}" version)
  if(NOT version)
    set(${error} "${wanted}, but TORCH_DIR=${TORCH_DIR} has no include/torch/headeronly/version.h. \
TORCH_DIR is the folder that holds torch's include/ and lib/." PARENT_SCOPE)
    return()
  elseif(version VERSION_LESS HIPNORM_TORCH_MINIMUM)
    set(${error} "${wanted}; TORCH_DIR=${TORCH_DIR} holds ${version}." PARENT_SCOPE)
    return()
  endif()
  foreach(name c10 torch_cpu torch)
    if(NOT EXISTS "${TORCH_DIR}/lib/lib${name}.so")
      set(${error} "TORCH_DIR=${TORCH_DIR} holds the headers of torch ${version}, but not \
lib/lib${name}.so." PARENT_SCOPE)
      return()
    endif()
  endforeach()

  if(EXISTS "${TORCH_DIR}/lib/libtorch_hip.so")
    set(build rocm)
  elseif(EXISTS "${TORCH_DIR}/lib/libtorch_cuda.so")
    set(build cuda)
  else()
    set(build cpu)
  endif()
  set(HIPNORM_TORCH_VERSION "${version}" PARENT_SCOPE)
  set(HIPNORM_TORCH_BUILD "${build}" PARENT_SCOPE)
  # Another torch put into the same place is noticed by the next build.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                                         "${TORCH_DIR}/include/torch/headeronly/version.h")
  if(TARGET hipnorm::torch)
    return()
  endif()

  set(libraries "")
  foreach(name torch_cpu c10 torch)
    add_library(hipnorm::lib${name} SHARED IMPORTED)
    set_target_properties(hipnorm::lib${name} PROPERTIES
      IMPORTED_LOCATION "${TORCH_DIR}/lib/lib${name}.so"
      IMPORTED_SONAME "lib${name}.so")
    list(APPEND libraries hipnorm::lib${name})
  endforeach()
  _hipnorm_torch_openmp("${TORCH_DIR}" openmp)
  if(openmp AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND libraries "${openmp}")
  else()
    # Clang's code calls its own runtime, libomp, which does not stand in for libgomp.
    if(openmp)
      message(WARNING "${CMAKE_CXX_COMPILER_ID} brings an OpenMP runtime of its own beside torch's \
libgomp: torch.set_num_threads will not reach hipnorm. Build with g++ for one runtime.")
    endif()
    list(APPEND libraries -fopenmp)
  endif()
  add_library(hipnorm::torch INTERFACE IMPORTED)
  # An imported target's include folders are system folders: torch's headers are not held to our
  # warnings.
  set_target_properties(hipnorm::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${TORCH_DIR}/include;${TORCH_DIR}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${libraries}"
    INTERFACE_COMPILE_FEATURES cxx_std_20  # what the wheels are built with; C++17 warns
    # Without it at::parallel_for, a header template, is silently serial.
    INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>")
  message(STATUS "torch ${version} (${build} build) in ${TORCH_DIR}")
endfunction()
