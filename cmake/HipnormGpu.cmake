# Which GPU kernels are built, and how. Included by the top CMakeLists.txt after torch was found.
#
# HIPNORM_GPU   auto (default): those of torch's own build, none without torch; none, cuda, rocm.
#   cuda or rocm with a CPU build of torch compiles the same kernels: that is what CI does.
# Sets HIPNORM_GPU_BUILD: none, cuda or rocm; HIPNORM_GPU_ARCHITECTURES, what the kernels are
# compiled for; HIPNORM_GPU_RUNTIME, the libraries that launch them.
#
# hipnorm_gpu_objects(NAME SOURCES file.hip… [DEFINITIONS name=value…] [FOR target]) compiles .hip
# files (HipnormCuda.cmake, HipnormRocm.cmake) and adds their objects to the target. Without FOR,
# NAME is a target of its own that nothing builds.
set(HIPNORM_GPU auto CACHE STRING "GPU kernels: auto (as torch was built), none, cuda, rocm")
set_property(CACHE HIPNORM_GPU PROPERTY STRINGS auto none cuda rocm)

set(HIPNORM_GPU_BUILD "${HIPNORM_GPU}")
if(HIPNORM_GPU STREQUAL "auto")
  set(HIPNORM_GPU_BUILD none)
  if(HIPNORM_TORCH AND HIPNORM_TORCH_BUILD MATCHES "^(cuda|rocm)$")
    set(HIPNORM_GPU_BUILD "${HIPNORM_TORCH_BUILD}")
  endif()
elseif(NOT HIPNORM_GPU MATCHES "^(none|cuda|rocm)$")
  message(FATAL_ERROR "HIPNORM_GPU is '${HIPNORM_GPU}'; expected auto, none, cuda or rocm.")
endif()
if(HIPNORM_TORCH AND NOT HIPNORM_GPU_BUILD STREQUAL "none"
   AND NOT HIPNORM_TORCH_BUILD STREQUAL HIPNORM_GPU_BUILD)
  if(NOT HIPNORM_TORCH_BUILD STREQUAL "cpu")
    message(FATAL_ERROR "HIPNORM_GPU=${HIPNORM_GPU}, but torch in ${TORCH_DIR} is a "
                        "${HIPNORM_TORCH_BUILD} build: its streams are not those of these kernels.")
  endif()
  message(STATUS "This torch is a CPU build: the ${HIPNORM_GPU_BUILD} kernels are compiled, and "
                 "will not run.")
endif()

if(HIPNORM_GPU_BUILD STREQUAL "cuda")
  include(HipnormCuda)
elseif(HIPNORM_GPU_BUILD STREQUAL "rocm")
  include(HipnormRocm)
endif()
