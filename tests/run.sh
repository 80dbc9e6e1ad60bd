#!/usr/bin/env bash
# Sets up what is missing, builds everything, runs every test through ctest. Arguments go to ctest:
# tests/run.sh -R dispatch
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

hipnorm_setup tests
hipnorm_build
cd "$root"
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
exec ctest --preset "$preset" "$@"
