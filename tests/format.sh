#!/usr/bin/env bash
# The formatting check: tests/format.sh lists the C++ files that clang-format would change and fails;
# tests/format.sh --fix changes them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly VERSION=23.1.5  # releases format differently: one for everybody

is_right() { [[ $("$1" --version 2>/dev/null) == *"version $VERSION"* ]]; }
format=''
for candidate in build/venv-format/bin/clang-format build/venv/bin/clang-format clang-format; do
  if is_right "$candidate"; then
    format=$candidate
    break
  fi
done
if [[ -z $format ]]; then
  echo "installing clang-format==$VERSION with pip in build/venv-format" >&2
  rm -rf build/venv-format
  "${HIPNORM_PYTHON:-python3}" -m venv build/venv-format
  build/venv-format/bin/python -m pip install -q --disable-pip-version-check clang-format=="$VERSION"
  format=build/venv-format/bin/clang-format
fi

mapfile -d '' files < <(git ls-files -z -co --exclude-standard -- '*.h' '*.cpp' '*.hip')
((${#files[@]})) || { echo "git lists no C++ files here" >&2; exit 1; }
if [[ ${1:-} == --fix ]]; then
  exec "$format" -i "${files[@]}"
fi
bad=()
for file in "${files[@]}"; do
  "$format" --dry-run -Werror "$file" 2>/dev/null || bad+=("$file")
done
if ((${#bad[@]})); then
  printf '%s\n' "${#bad[@]} of ${#files[@]} files are not as clang-format $VERSION writes them:" \
    "${bad[@]/#/  }" "tests/format.sh --fix mends them." >&2
  exit 1
fi
echo "${#files[@]} files are formatted."
