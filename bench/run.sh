#!/usr/bin/env bash
# From a bare Debian or Ubuntu to the table against aten: sets up what is missing, builds Release,
# runs hipnorm-bench with this script's arguments. Later runs only build what changed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

preset=${HIPNORM_PRESET:-cpu}
hipnorm_setup bench "$preset"
hipnorm_build "$preset" hipnorm-bench
exec "$root/build/$preset/bench/hipnorm-bench" "$@"
