# hipnorm_commit(TARGET OUTPUT): every build of TARGET asks git which commit it builds, and writes
# that to the header OUTPUT where it has changed. As a script (cmake -P) it is what the build runs.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND "${GIT}" rev-parse HEAD WORKING_DIRECTORY "${SOURCES}"
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # What is measured are kernels and dispatch, what measures and judges is bench and tests/reference,
  # and the flags come from cmake; the tables themselves may be in the making.
  execute_process(COMMAND "${GIT}" status --porcelain -- csrc kernels bench tests/reference
                          cmake CMakeLists.txt CMakePresets.json
                  WORKING_DIRECTORY "${SOURCES}" OUTPUT_VARIABLE changes ERROR_QUIET)
  set(dirty false)
  if(commit AND changes)
    set(dirty true)
  endif()
  file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once
#define HIPNORM_COMMIT \"${commit}\"
#define HIPNORM_COMMIT_DIRTY ${dirty}
")
  return()
endif()

function(hipnorm_commit target output)
  find_program(HIPNORM_GIT git)
  add_custom_target(${target}_commit
    COMMAND ${CMAKE_COMMAND} -D GIT=${HIPNORM_GIT} -D SOURCES=${PROJECT_SOURCE_DIR}
            -D OUTPUT=${output} -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    BYPRODUCTS ${output}
    COMMENT "Asking git for the commit" VERBATIM)
  add_dependencies(${target} ${target}_commit)
endfunction()
