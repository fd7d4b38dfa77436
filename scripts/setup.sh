#!/usr/bin/env bash
# Installs what building and testing need from Debian's packages; says nothing if all is there.
# With a CUDA toolkit, it also fetches the headers of cuDNN's frontend by pip.
#   scripts/setup.sh [--dev|--fuzz|--cuda]     also what scripts/check.sh, scripts/fuzz.sh, or
#                                              scripts/fetch_cuda.sh uses
# Exit codes: 0 ready, 2 an administrator is needed (the command to run is printed), 3 apt failed.
set -euo pipefail

packages=(g++ cmake ninja-build libdnnl-dev libcli11-dev nlohmann-json3-dev
          libfmt-dev libgtest-dev libgmock-dev libbenchmark-dev git)
case "${1:-}" in
  "") ;;
  --dev) packages+=(clang-format clang-tidy shellcheck python3 ccache) ;;
  --fuzz) packages+=(clang libclang-rt-dev) ;;
  --cuda) packages+=(python3 python3-pip) ;;
  *) echo "setup.sh: unknown option '$1'; there are --dev, --fuzz and --cuda" >&2; exit 2 ;;
esac

# One of our tools that did not come as a package serves as well.
declare -A command_of=([cmake]=cmake [ninja-build]=ninja [git]=git
                       [clang-format]=clang-format [clang-tidy]=clang-tidy
                       [shellcheck]=shellcheck [python3]=python3 [python3-pip]=pip3
                       [ccache]=ccache)

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

# Without these headers the build has no cuDNN attention, and that is all.
fetch_cudnn_frontend() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || return 0
  "$(dirname "${BASH_SOURCE[0]}")/fetch_cuda.sh" frontend ||
    echo "setup.sh: so the CUDA backend is built without cuDNN's attention" >&2
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
