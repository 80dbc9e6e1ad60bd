#!/bin/sh
# Runs every GPU kernel under the four tools of NVIDIA's compute-sanitizer, each after it has found
# the bug seeded for it. Small shapes that reach every variant and dtype; buffers that end with their
# last element, outputs and workspaces left as they were allocated.
#   tests/gpu/sanitize.sh BUILD_FOLDER [GTEST_FILTER]
set -u
build=${1:?the build folder, for example build/cuda}
filter=${2:-*StrideZero*}
bugs=$build/tests/gpu/seeded_bugs
tests=$build/tests/kernels/kernels_gpu_test
export HIPNORM_REQUIRE_GPU=1 HIPNORM_TEST_QUICK=1 HIPNORM_TEST_EXACT_MEMORY=1
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on the PATH" >&2; exit 1; }

failed=0
for tool in memcheck racecheck synccheck initcheck; do
  log=$build/sanitize-$tool.log
  if compute-sanitizer --tool $tool --error-exitcode 9 "$bugs" $tool >"$log" 2>&1; then
    echo "$tool: did not find the seeded bug ($log)"
    failed=1
    continue
  fi
  if compute-sanitizer --tool $tool --error-exitcode 9 "$tests" "--gtest_filter=$filter" >"$log" 2>&1
  then
    echo "$tool: found its seeded bug; clean over $(sed -n 's/.*\] \([0-9]* tests\) from.*ran.*/\1/p' "$log")"
  else
    echo "$tool: $(grep -m1 'ERROR SUMMARY' "$log") ($log)"
    grep '=========' "$log" | head -20
    failed=1
  fi
done
exit $failed
