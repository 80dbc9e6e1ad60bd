#!/usr/bin/env bash
# Compiles for AMD and checks the machine code and the library, without a GPU and without the other
# tests; the rocm stage of .ci/run. Arguments go to ctest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/bootstrap.sh"

export HIPNORM_PRESET=${HIPNORM_PRESET:-ci-rocm}
hipnorm_setup tests
hipnorm_build rocm_ci
cd "$root"
exec ctest --preset "$preset" -L '^rocm$' "$@"
