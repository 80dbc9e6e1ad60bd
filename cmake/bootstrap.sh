# shellcheck shell=bash
# What bench/run.sh and tests/run.sh share: from a bare Debian or Ubuntu to a configured build.
# Sourced, not run. Everything it prints goes to stderr: stdout belongs to the program that follows.
#
#   hipnorm_setup KIND     KIND bench or tests; sets `preset`, of CMakePresets.json
#   hipnorm_build [TARGET]
#
# A person may set: HIPNORM_PRESET (default cuda where torch is a CUDA build and nvcc is here, rocm
# where it is a ROCm build and ROCm is here, else cpu), TORCH_DIR (torch's folder with include/ and
# lib/), HIPNORM_PYTHON (default python3), CXX, CUDA_HOME, ROCM_PATH, CMAKE_BUILD_PARALLEL_LEVEL, and
# whatever apt and pip read.
# A set-up that was interrupted is taken up by the next run: each step looks at what is there, and
# the stamp that skips them all is written last.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf 'hipnorm: %s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# ---- Debian packages -------------------------------------------------------------------------

# Header, and the package that brings it in Debian 12 and Ubuntu 24.04.
readonly HEADERS=(
  boost/context/fiber.hpp libboost-context-dev
  CLI/CLI.hpp libcli11-dev
  fmt/format.h libfmt-dev
  gmock/gmock.h libgmock-dev
  gtest/gtest.h libgtest-dev
  nlohmann/json.hpp nlohmann-json3-dev
)

# Asks the compiler, which knows CPATH and its own folders; without one, looks where apt puts them.
has_header() {
  local compiler=${CXX:-c++} prefix includes=()
  local IFS=:
  for prefix in ${CMAKE_PREFIX_PATH:-}; do includes+=("-I$prefix/include"); done
  if have "$compiler"; then
    printf '#include <%s>\n' "$1" |
      "$compiler" "${includes[@]}" -std=c++20 -E -x c++ - >/dev/null 2>&1
  else
    [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]
  fi
}

# What ci-rocm compiles with where there is no ROCm: a file, and the package that brings it in
# Debian 12 (HIP 5.2 and rocPRIM 5.3 for a clang that knows gfx950).
readonly OLD_HIP=(
  /usr/include/hip/hip_runtime.h libamdhip64-dev
  /usr/include/rocprim/rocprim.hpp librocprim-dev
  /usr/lib/x86_64-linux-gnu/amdgcn/bitcode/ocml.bc rocm-device-libs
  /usr/bin/clang++-22 clang-22
  /usr/bin/ld.lld-22 lld-22
  /usr/bin/clang-offload-bundler-22 clang-tools-22
  /usr/bin/llvm-objdump-22 llvm-22
)

# Prints where ROCm lies.
rocm_root() {
  local place
  for place in "${ROCM_PATH:-}" "${HIP_PATH:-}" /opt/rocm; do
    if [[ -n $place && -e $place/include/hip/hip_version.h ]]; then
      printf '%s\n' "$place"
      return
    fi
  done
  return 1
}

# Sets `missing` to the packages that KIND needs and this machine lacks.
find_missing() {
  local kind=$1 i
  missing=()
  have "${CXX:-c++}" || missing+=(g++)
  have cmake || missing+=(cmake)
  have ninja || missing+=(ninja-build)
  for ((i = 0; i < ${#HEADERS[@]}; i += 2)); do
    has_header "${HEADERS[i]}" || missing+=("${HEADERS[i + 1]}")
  done
  if [[ $preset == ci-rocm ]] && ! rocm_root >/dev/null; then
    for ((i = 0; i < ${#OLD_HIP[@]}; i += 2)); do
      [[ -e ${OLD_HIP[i]} ]] || missing+=("${OLD_HIP[i + 1]}")
    done
  fi
  if ! have "$base_python"; then
    [[ $base_python == python3 ]] || fail "HIPNORM_PYTHON=$base_python is no program here."
    missing+=(python3 python3-dev python3-venv)
    return
  fi
  # Only Debian's own Python can be completed by Debian's packages.
  [[ $("$base_python" -c 'import sys; print(sys.base_prefix)') == /usr ]] || return 0
  # torch.compile, which the tests use, compiles against Python.h.
  if [[ $kind == tests ]] && ! "$base_python" -c '
import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
    missing+=(python3-dev)
  fi
  choose_python "$kind"
  if [[ -n $venv_reason ]] && ! "$base_python" -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=(python3-venv)
  fi
}

install_missing() {
  ((${#missing[@]})) || return 0
  local command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  local as_root=()
  have apt-get || fail "missing here (by Debian's names): ${missing[*]}. Install them and run again."
  if ((EUID != 0)); then
    # sudo may ask for a password where there is a terminal to ask on.
    if have sudo && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      fail "missing here: ${missing[*]}. This is not root and cannot use sudo. As root: $command"
    fi
  fi
  say "missing here: ${missing[*]}. Running ${as_root[*]:+sudo }$command"
  # --configure -a and -f finish what an earlier run left half done; all but free otherwise.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c '
    dpkg --configure -a && { apt-get update || echo "apt-get update failed; using old lists"; } &&
    apt-get -o DPkg::Lock::Timeout=300 install -y -f --no-install-recommends "$@"
  ' sh "${missing[@]}" >&2 </dev/null || fail "apt-get failed; its messages are above."
}

check_versions() {
  local cmake_version
  cmake_version=$(cmake --version | sed -n '1s/^cmake version //p')
  [[ $(printf '%s\n' 3.22 "$cmake_version" | sort -V | head -n 1) == 3.22 ]] ||
    fail "CMake ≥ 3.22 is needed; $(command -v cmake) is $cmake_version. A newer one: pip install cmake"
  "$base_python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "Python ≥ 3.10 is needed; $base_python is $("$base_python" --version 2>&1)." \
      "HIPNORM_PYTHON may name another."
}

# ---- Python and torch ------------------------------------------------------------------------

# torch_of PYTHON: prints the folder of its torch, if that imports and is ≥ 2.11.
torch_of() {
  have "$1" && (cd / && "$1" -c '
import os, re, torch
assert tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= (2, 11)
print(os.path.dirname(os.path.realpath(torch.__file__)))' 2>/dev/null)
}

# Sets `python` and `torch_dir`; or `venv_reason`, why build/venv has to be made, and `torch_dir`
# where that venv is to use the torch which the base Python has.
choose_python() {
  local kind=$1 candidate
  python=$base_python torch_dir='' venv_reason=''
  if [[ -n ${TORCH_DIR:-} ]]; then
    torch_dir=$(realpath -m -- "$TORCH_DIR")
    [[ -e $torch_dir/lib/libtorch_cpu.so ]] || fail "TORCH_DIR=$TORCH_DIR holds no torch:" \
      "lib/libtorch_cpu.so is not there. TORCH_DIR is the folder with torch's include/ and lib/."
    [[ $kind == bench ]] && return
    # The tests in Python have to use that very torch; TORCH_DIR may lie in a virtual environment.
    for candidate in "$base_python" "$torch_dir/../../../../bin/python3"; do
      if [[ $(torch_of "$candidate") == "$torch_dir" ]]; then
        python=$candidate
        break
      fi
    done
    [[ $(torch_of "$python") == "$torch_dir" ]] || fail "the tests need a Python that imports the" \
      "torch in TORCH_DIR=$TORCH_DIR; $base_python does not. HIPNORM_PYTHON may name one."
  elif ! torch_dir=$(torch_of "$base_python"); then
    venv_reason="$base_python cannot import torch ≥ 2.11"
    return
  fi
  if [[ $kind == tests ]] && ! "$python" -c 'import numpy, pytest' 2>/dev/null; then
    venv_reason="$python has torch, but not both numpy and pytest"
  fi
}

# Makes build/venv: with the torch in `torch_dir` if there is one, else with its own.
make_venv() {
  local venv=$root/build/venv requirements=() options=() key
  mapfile -t requirements < <(grep -v '^#' "$root/cmake/requirements.txt")
  if [[ -n $torch_dir ]]; then
    mapfile -t requirements < <(printf '%s\n' "${requirements[@]}" | grep -v '^torch')
    options=(--system-site-packages)
  fi
  key="$root $(command -v "$python") $torch_dir ${requirements[*]}"
  if [[ ! -x $venv/bin/python || $(cat "$venv/complete" 2>/dev/null) != "$key" ]]; then
    say "$venv_reason. Making build/venv and installing there: ${requirements[*]}"
    [[ -n $torch_dir ]] || say "pip's default index gives torch's CUDA build, a download of" \
      "gigabytes; the CPU build is 200 MB. pip reads its own configuration (PIP_EXTRA_INDEX_URL" \
      "and so on): README.md, 'Which torch', says how to choose."
    rm -rf "$venv"
    {
      "$python" -m venv "${options[@]}" "$venv" &&
        "$venv/bin/python" -m pip install --disable-pip-version-check "${requirements[@]}"
    } >&2 </dev/null || fail "build/venv could not be made; pip's messages are above."
    # A base Python that is a virtual environment itself does not pass its packages on.
    [[ -z $torch_dir ]] || dirname "$torch_dir" >"$("$venv/bin/python" -c \
      'import sysconfig; print(sysconfig.get_path("purelib"))')/hipnorm-torch.pth"
    printf '%s\n' "$key" >"$venv/complete"  # last: without it the next run starts afresh
  fi
  python=$venv/bin/python
  torch_dir=$(torch_of "$python") || fail "build/venv cannot import torch ≥ 2.11. Remove build/venv" \
    "and run again; '$python -c \"import torch\"' says why."
}

# ---- CMake -----------------------------------------------------------------------------------

# Prints the preset for the torch in `torch_dir`.
choose_preset() {
  if [[ -e $torch_dir/lib/libtorch_hip.so ]]; then
    if rocm_root >/dev/null; then
      echo rocm
    elif [[ -e /dev/kfd ]]; then
      fail "an AMD GPU is here and a ROCm build of torch, but no ROCm to compile with, in ROCM_PATH" \
        "or /opt/rocm: install AMD's packages hip-dev, rocprim-dev and rocm-llvm (ROCm 6.3 or" \
        "newer), or set HIPNORM_PRESET=cpu."
    else
      say "torch is a ROCm build, but neither a GPU nor ROCm is here: building for the CPU."
      echo cpu
    fi
  elif [[ ! -e $torch_dir/lib/libtorch_cuda.so ]]; then
    echo cpu
  elif have nvcc || [[ -n ${CUDACXX:-} || -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; then
    echo cuda
  elif compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    fail "a GPU is here and a CUDA build of torch, but no nvcc, on the PATH or in CUDA_HOME:" \
      "install NVIDIA's CUDA toolkit (12 or newer; 13.0 is tried), or set HIPNORM_PRESET=cpu."
  else
    say "torch is a CUDA build, but neither a GPU nor nvcc is here: building for the CPU."
    echo cpu
  fi
}

configure() {
  local binary=$root/build/$preset
  # Left by another source folder, or by a cmake that was interrupted.
  grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$binary/CMakeCache.txt" || rm -rf "$binary"
  (cd "$root" && cmake --preset "$preset" -DHIPNORM_PYTHON="$python" -DTORCH_DIR="$torch_dir") >&2 ||
    fail "cmake could not configure build/$preset; its messages are above."
}

# What the set-up depends on, as one word.
setup_key() {
  {
    cat "$root"/cmake/bootstrap.sh "$root"/cmake/requirements.txt "$root"/CMakePresets.json
    printf '%s\n' "$root" "$(command -v "$base_python")" "${TORCH_DIR:-}" "${CXX:-}" \
      "${CXXFLAGS:-}" "${CMAKE_PREFIX_PATH:-}" "${CUDA_HOME:-}" "$(command -v nvcc)" \
      "${ROCM_PATH:-}" "${HIP_PATH:-}" "$(rocm_root)"
  } | sha256sum | cut -d ' ' -f 1
}

hipnorm_setup() {
  local kind=$1 stamp old_key='' old_kind='' old_torch='' old_preset=''
  preset=${HIPNORM_PRESET:-}
  base_python=${HIPNORM_PYTHON:-python3}
  if [[ $base_python == */* && -x $base_python ]]; then  # not realpath: that leaves a venv
    base_python=$(cd "$(dirname "$base_python")" && pwd)/$(basename "$base_python")
  fi
  mkdir -p "$root/build"
  exec 9>"$root/build/setup.lock"
  flock 9  # a second run.sh waits until this one has built

  # One stamp for each preset that was named, one for the choice.
  stamp=$root/build/setup${preset:+.$preset}.stamp
  [[ ! -f $stamp ]] ||
    { read -r old_key && read -r old_kind && read -r old_torch && read -r old_preset; } <"$stamp" ||
    true
  # What the tests need includes what the benchmark needs.
  if [[ $old_key == "$(setup_key)" && $old_kind =~ ^("$kind"|tests)$ &&
    -e $old_torch/lib/libtorch_cpu.so && -f $root/build/$old_preset/CMakeCache.txt ]]; then
    preset=$old_preset
    return
  fi

  local missing=() python='' torch_dir='' venv_reason=''
  find_missing "$kind"
  install_missing
  check_versions
  [[ -n $python ]] || choose_python "$kind"
  [[ -z $venv_reason ]] || make_venv
  python=$(command -v "$python")
  [[ -n $preset ]] || preset=$(choose_preset) || exit 1
  configure
  # The key anew: python3 may be new here.
  printf '%s\n' "$(setup_key)" "$kind" "$torch_dir" "$preset" >"$stamp"
}

# hipnorm_build [TARGET]: everything, or TARGET. A unit that includes torch takes up to
# 1.4 GB to compile: no more of them at once than memory holds.
hipnorm_build() {
  local jobs memory
  jobs=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
  ((memory >= 1)) || memory=1
  ((jobs <= memory)) || jobs=$memory
  cmake --build "$root/build/$preset" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$jobs}" \
    ${1:+--target "$1"} >&2 9>&- || fail "the build failed; its messages are above."
  exec 9>&-
}
