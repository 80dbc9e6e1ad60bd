# The install rules: libhipnorm.so, its header, and a CMake package. A consumer writes
#   find_package(hipnorm REQUIRED)
#   target_link_libraries(program PRIVATE hipnorm::hipnorm)
# and includes <hipnorm/hipnorm.h>, or calls the operators by name.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT TARGET hipnorm::hipnorm)
  add_library(hipnorm::hipnorm ALIAS hipnorm)  # the same name in this tree as in the package
endif()
# Where torch lay when the library was built stays in its run path: a program finds torch's
# libraries without LD_LIBRARY_PATH. (In Python they are loaded already.)
set_target_properties(hipnorm PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hipnorm")
install(TARGETS hipnorm EXPORT hipnormTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES csrc/hipnorm.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/hipnorm")
install(EXPORT hipnormTargets NAMESPACE hipnorm:: DESTINATION "${package_dir}")
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/hipnormConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/hipnormConfig.cmake" INSTALL_DESTINATION "${package_dir}"
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hipnormConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/hipnormConfig.cmake"
              "${PROJECT_BINARY_DIR}/hipnormConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/HipnormTorch.cmake"
        DESTINATION "${package_dir}")
