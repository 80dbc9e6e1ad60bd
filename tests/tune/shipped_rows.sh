#!/bin/sh
# Runs every row of the tables in use on this machine's GPU and judges its results; times are not
# looked at. Without a GPU the exit code is 77, or with HIPNORM_REQUIRE_GPU=1 it is 1.
#   tests/tune/shipped_rows.sh HIPNORM_TUNE
set -u
tune=${1:?the program hipnorm-tune}
hello=$(echo '{"do": "hello", "device": "gpu"}' | "$tune" worker 3>&1 >/dev/null 2>&1)
arch=$(printf '%s\n' "$hello" | sed -n 's/.*"arch":"\([^"]*\)".*"ok":true.*/\1/p')
if [ -z "$arch" ]; then
  required=${HIPNORM_REQUIRE_GPU:-}
  [ "$required" = 1 ] && echo "HIPNORM_REQUIRE_GPU=1, but: $hello" >&2 && exit 1
  echo "skipped: $hello" >&2
  exit 77
fi
summary=$("$tune" verify --device gpu --accuracy-only | tee /dev/stderr | tail -n 1)
table=$(dirname "$0")/../../configs/$arch.csv
rows=0
[ -e "$table" ] && rows=$(grep -c '^[a-z_]*,.*"' "$table")
# As many as the file has, none of them bad.
case $summary in
  "$rows rows of $arch verified, 0 bad.") ;;
  *) echo "expected $rows rows of $arch without a bad one" >&2; exit 1 ;;
esac
