#!/usr/bin/env bash
# From a bare Debian or Ubuntu to the table against aten: sets up what is missing, builds Release,
# runs hipnorm-bench with this script's arguments. Later runs only build what changed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

hipnorm_setup bench
hipnorm_build hipnorm-bench
exec "$root/build/$preset/bench/hipnorm-bench" "$@"
