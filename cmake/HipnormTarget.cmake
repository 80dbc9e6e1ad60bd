# hipnorm_target(NAME): what every target built here has in common: C++20, include paths from the
# repository's root, warnings, sanitizers, position-independent code, hidden symbols, ccache.
find_program(HIPNORM_CCACHE ccache)
if(HIPNORM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HIPNORM_CCACHE}")
endif()

# For kernels, behind hipnorm_target's options. The undefined-behaviour sanitizer's checks of each
# pointer take half to three quarters of the time to compile them (isa_*.cpp: 200 s, 80 without;
# an emulated unit 18 and 11), and the address sanitizer sees what they would.
set(HIPNORM_NO_POINTER_CHECKS "")
if(HIPNORM_SANITIZE)
  set(HIPNORM_NO_POINTER_CHECKS
    -fno-sanitize=null,alignment,object-size,bounds,vptr,pointer-overflow)
endif()

function(hipnorm_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  # For C++ only: nvcc takes its host compiler's warnings in a form of their own (HipnormCuda.cmake).
  set(options -Wall -Wextra -Wpedantic -Wshadow)
  # Wrong about g++ 12's own AVX-512 header, whose _mm512_undefined_ps() is `__m512 y = y` (236 times
  # in kernels/cpu/isa_avx512.cpp), and, as GCC's manual says, wherever a sanitizer is on.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND (HIPNORM_SANITIZE OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13))
    list(APPEND options -Wno-maybe-uninitialized)
  endif()
  if(HIPNORM_STRICT)
    list(APPEND options -Werror)
  endif()
  if(HIPNORM_SANITIZE)
    list(APPEND options -fsanitize=${HIPNORM_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    target_link_options(${name} PUBLIC -fsanitize=${HIPNORM_SANITIZE})
  endif()
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
                                           CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
endfunction()
