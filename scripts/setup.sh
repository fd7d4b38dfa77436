#!/usr/bin/env bash
# Installs what building and testing need from Debian's packages; says nothing if all is there.
# With a CUDA toolkit, it also fetches the headers of cuDNN's frontend by pip.
#   scripts/setup.sh [--dev|--fuzz]     also what scripts/check.sh, or scripts/fuzz.sh, uses
# Exit codes: 0 ready, 2 an administrator is needed (the command to run is printed), 3 apt failed.
set -euo pipefail

packages=(g++ cmake ninja-build libdnnl-dev libcli11-dev nlohmann-json3-dev
          libfmt-dev libgtest-dev libgmock-dev libbenchmark-dev git)
case "${1:-}" in
  "") ;;
  --dev) packages+=(clang-format clang-tidy shellcheck python3 ccache) ;;
  --fuzz) packages+=(clang libclang-rt-14-dev) ;;
  *) echo "setup.sh: unknown option '$1'; there are --dev and --fuzz" >&2; exit 2 ;;
esac

# One of our tools that did not come as a package serves as well.
declare -A command_of=([cmake]=cmake [ninja-build]=ninja [git]=git
                       [clang-format]=clang-format [clang-tidy]=clang-tidy
                       [shellcheck]=shellcheck [python3]=python3 [ccache]=ccache)

# Whether a g++ that the build takes is there: names and versions are those of CMakeLists.txt.
has_compiler() {
  local name
  for name in g++-12 g++ g++-13 g++-14 g++-15; do
    if command -v $name >/dev/null && [ "$($name -dumpversion | cut -d . -f 1)" -ge 12 ]; then
      return
    fi
  done
  return 1
}

has_command() {
  if [ "$1" = g++ ]; then has_compiler
  else [ -n "${command_of[$1]:-}" ] && command -v "${command_of[$1]}" >/dev/null
  fi
}

# Fills `missing`. A package that an interrupted installation left half configured is missing too.
find_missing() {
  local states package
  states=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  missing=()
  for package in "${packages[@]}"; do
    if grep -qE "^${package//+/\\+} (half|unpacked|triggers)" <<<"$states"; then
      missing+=("$package")
    elif [ "$package" = g++ ] && ! has_compiler && grep -qxF "g++ installed" <<<"$states"; then
      missing+=(g++-12)  # beside an older one
    elif ! grep -qxF "$package installed" <<<"$states" && ! has_command "$package"; then
      missing+=("$package")
    fi
  done
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
  if [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]; then
    echo "setup.sh: $(command -v cmake) is version $version, 3.25 or newer is needed;" \
         "put a newer one first on PATH (Debian 12 has 3.25)" >&2
    exit 2
  fi
}

need_administrator() {
  {
    echo "setup.sh: missing: ${missing[*]}"
    echo "setup.sh: $1; ask an administrator to run"
    echo "  apt-get update && apt-get install --yes --no-install-recommends ${missing[*]}"
  } >&2
  exit 2
}

# cuDNN's C++ frontend: headers only, in a Python package that Debian does not have. They go where
# CMake finds them; without them the build has no cuDNN attention, and that is all.
fetch_cudnn_frontend() {
  local version=1.32.0
  local sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
  local to log
  to="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/third_party/cudnn_frontend"
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || return 0
  if [ "$(cat "$to/version" 2>/dev/null)" = $version ]; then return 0; fi
  # Beside its place, so that an interruption leaves nothing that looks whole.
  rm -rf "$to" "$to.new"
  mkdir -p "$to.new"
  log="$to.new/log"
  # One file whatever the Python, checked by its hash: only its headers are used.
  if (cd "$to.new" &&
      echo "nvidia-cudnn-frontend==$version --hash=sha256:$sha256" >wanted &&
      python3 -m pip download --disable-pip-version-check --no-input --quiet --retries 1 \
        --timeout 20 --no-deps --only-binary=:all: --implementation cp --python-version 3.11 \
        --platform manylinux_2_28_x86_64 --require-hashes --requirement wanted &&
      python3 -m zipfile -e nvidia_cudnn_frontend-*.whl all) >"$log" 2>&1; then
    mkdir -p "$to"
    mv "$to.new/all/include" "$to.new"/all/*.dist-info/licenses "$to"
    echo $version >"$to/version"
  else
    echo "setup.sh: pip could not fetch nvidia-cudnn-frontend $version, so the CUDA backend is" \
         "built without cuDNN's attention: $(grep -m 1 ERROR "$log" || grep . "$log" | tail -n 1)" >&2
  fi
  rm -rf "$to.new"
}

find_missing
if [ ${#missing[@]} -eq 0 ]; then
  check_cmake
  fetch_cudnn_frontend
  exit 0
fi

command -v apt-get >/dev/null || need_administrator "this system has no apt-get"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || need_administrator "not root, and there is no sudo"
  # Without a terminal sudo could only wait for a password that nobody types.
  if [ -t 0 ]; then sudo -v || need_administrator "sudo refused"
  else sudo -n true 2>/dev/null || need_administrator "sudo wants a password and there is no terminal"
  fi
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --yes -qq -o DPkg::Lock::Timeout=120 \
    -o Dpkg::Use-Pty=0 "$@"
}
install() { apt install --no-install-recommends "${missing[@]}"; }

echo "setup.sh: installing ${missing[*]}"
# What an interrupted installation left behind would stop every other one.
if [ -n "$(dpkg --audit 2>/dev/null)" ]; then
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a
fi
# Fresh machines have empty package lists and others old ones: fetch them when they do not do.
if ! install --simulate >/dev/null 2>&1 || ! install; then
  apt update || { echo "setup.sh: apt-get update failed (is there a network?)" >&2; exit 3; }
  install || { echo "setup.sh: apt-get could not install ${missing[*]}" >&2; exit 3; }
fi
find_missing
if [ ${#missing[@]} -ne 0 ]; then
  echo "setup.sh: apt-get reported success, but these are missing: ${missing[*]}" >&2
  exit 3
fi
check_cmake
fetch_cudnn_frontend
