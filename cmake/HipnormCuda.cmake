# The GPU kernels by nvcc. HipnormGpu.cmake says what this file has to provide.
#
# HIPNORM_CUDA_ARCHITECTURES   as CMAKE_CUDA_ARCHITECTURES. The default has machine code for Ampere
#   and Hopper, and PTX of the latter, from which the driver compiles for what is newer.
set(HIPNORM_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Architectures of the CUDA build")
set(HIPNORM_GPU_ARCHITECTURES "${HIPNORM_CUDA_ARCHITECTURES}")

# CMake looks for nvcc on the PATH and in CUDACXX; the toolkit's installer puts it on neither.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(HIPNORM_NVCC nvcc
               HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT HIPNORM_NVCC)
    message(FATAL_ERROR "The CUDA build (HIPNORM_GPU=${HIPNORM_GPU}) needs nvcc, and there is none "
      "on the PATH, in CUDA_HOME or in /usr/local/cuda. Install NVIDIA's CUDA toolkit, version "
      "12 or newer (13.0 is tried), or give -DCMAKE_CUDA_COMPILER=<nvcc>; without GPU kernels: "
      "-DHIPNORM_GPU=none.")
  endif()
  set(CMAKE_CUDA_COMPILER "${HIPNORM_NVCC}")
endif()
set(CMAKE_CUDA_ARCHITECTURES "${HIPNORM_CUDA_ARCHITECTURES}")
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "nvcc ≥ 12.0 is needed, the first that knows C++20; "
                      "${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION}.")
endif()
find_package(CUDAToolkit REQUIRED)
set(HIPNORM_GPU_RUNTIME CUDA::cudart_static)
if(HIPNORM_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${HIPNORM_CCACHE}")
endif()
message(STATUS "CUDA kernels by nvcc ${CMAKE_CUDA_COMPILER_VERSION} for "
               "${HIPNORM_CUDA_ARCHITECTURES}")

# An object library: only its objects and not the language reach the target, which CMake would link
# with nvcc.
function(hipnorm_gpu_objects name)
  cmake_parse_arguments(ARG "" "FOR" "SOURCES;DEFINITIONS" ${ARGN})
  add_library(${name} OBJECT ${ARG_SOURCES})
  hipnorm_target(${name})
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINITIONS})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CUDA)
  set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static
                                           CUDA_VISIBILITY_PRESET hidden)
  # A kernel that spills registers or keeps an array in local memory moves bytes that no plan
  # counts (24 bytes a lane in the loop of the backward cost 10 %). ptxas names the kernel and the
  # bytes; strictly, that is an error.
  set(ptxas -warn-spills -warn-lmem-usage)
  if(HIPNORM_STRICT)
    list(APPEND ptxas -Werror)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
  endif()
  list(JOIN ptxas "," ptxas)
  # -std by hand: CMake 3.25 does not know that nvcc has C++20. The host compiler sees nvcc's
  # rewritten text, which has parentheses around member pointers that nobody wrote.
  set(warnings -Wall,-Wextra,-Wshadow,-Wno-parentheses)
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xptxas=${ptxas};-Xcompiler=${warnings}>")
  if(ARG_FOR)
    target_sources(${ARG_FOR} PRIVATE $<TARGET_OBJECTS:${name}>)
  else()
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
