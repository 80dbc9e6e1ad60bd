# Which GPU kernels are built, and how. Included by the top CMakeLists.txt after torch was found.
#
# HIPNORM_GPU   auto (default): those of torch's own build, none without torch; none, cuda, rocm.
#   cuda with a CPU build of torch compiles the same kernels: that is what CI does.
# HIPNORM_CUDA_ARCHITECTURES   as CMAKE_CUDA_ARCHITECTURES. The default has machine code for Ampere
#   and Hopper, and PTX of the latter, from which the driver compiles for what is newer.
# Sets HIPNORM_GPU_BUILD: none or cuda; for cuda, the language CUDA and CUDA::cudart_static exist.
#
# hipnorm_gpu_target(NAME) gives a target of .hip files its language and its flags.
set(HIPNORM_GPU auto CACHE STRING "GPU kernels: auto (as torch was built), none, cuda, rocm")
set_property(CACHE HIPNORM_GPU PROPERTY STRINGS auto none cuda rocm)
set(HIPNORM_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Architectures of the CUDA build")

set(HIPNORM_GPU_BUILD "${HIPNORM_GPU}")
if(HIPNORM_GPU STREQUAL "auto")
  set(HIPNORM_GPU_BUILD none)
  if(HIPNORM_TORCH AND HIPNORM_TORCH_BUILD STREQUAL "cuda")
    set(HIPNORM_GPU_BUILD cuda)
  elseif(HIPNORM_TORCH AND HIPNORM_TORCH_BUILD STREQUAL "rocm")
    message(STATUS "This torch is a ROCm build, and this version of hipnorm has no build for it: "
                   "building the CPU kernels. Tensors on a GPU will be refused.")
  endif()
elseif(HIPNORM_GPU STREQUAL "rocm")
  message(FATAL_ERROR "HIPNORM_GPU=rocm: this version has no ROCm build; none and cuda it has.")
elseif(NOT HIPNORM_GPU MATCHES "^(none|cuda)$")
  message(FATAL_ERROR "HIPNORM_GPU is '${HIPNORM_GPU}'; expected auto, none, cuda or rocm.")
endif()

if(HIPNORM_GPU_BUILD STREQUAL "cuda")
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
  if(HIPNORM_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${HIPNORM_CCACHE}")
  endif()
  if(HIPNORM_TORCH AND HIPNORM_TORCH_BUILD STREQUAL "cpu")
    message(STATUS "This torch is a CPU build: the CUDA kernels are compiled, and will not run.")
  endif()
  message(STATUS "CUDA kernels by nvcc ${CMAKE_CUDA_COMPILER_VERSION} for "
                 "${HIPNORM_CUDA_ARCHITECTURES}")
endif()

function(hipnorm_gpu_target name)
  hipnorm_target(${name})
  get_target_property(sources ${name} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.hip$")
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
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
endfunction()
