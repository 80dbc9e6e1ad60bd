#!/usr/bin/env bash
# Writes the pages of docs/ that come from the cost model: docs/rocm-choices.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/bootstrap.sh"

hipnorm_setup tests
hipnorm_build dispatch_test
HIPNORM_WRITE_DOCS=1 "$root/build/$preset/tests/dispatch/dispatch_test" --gtest_brief=1 \
  --gtest_filter='AmdChoices.AreWhatTheDocumentationSays'
