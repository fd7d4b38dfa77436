#!/usr/bin/env bash
# Installs the Debian packages needed to build and test, as root or with sudo. Without either, it unpacks the same
# packages into build/third_party (scripts/unpack_packages.sh); cmake and ninja, if they are missing there or too old,
# come from Python packages (scripts/fetch_cmake.sh). Prints nothing if nothing is missing. If pip is available, it also
# fetches plotly.js for reports and, if there is a CUDA toolkit, the headers of cuDNN's frontend; training needs
# neither.
#   scripts/setup.sh [--mpi|--dev|--fuzz|--cuda|--packages]
#     the option also installs Open MPI, for several processes, or the dependencies of scripts/check.sh, fuzz.sh,
#     fetch_cuda.sh or make_packages.sh
# MUO_GPU_ROOT: folder that contains usr and etc, instead of / (for tests).
# Exit codes: 0 ready, 2 an administrator is needed (the command to run is printed), 3 apt or pip failed.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$scripts/path.sh"

packages=(g++ cmake ninja-build libdnnl-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
          libfmt-dev libpcre2-dev libyaml-dev zlib1g-dev libzstd-dev libcpp-httplib-dev
          libsentencepiece-dev libonig-dev libutf8proc-dev libsodium-dev libgtest-dev libgmock-dev libbenchmark-dev)
case "${1:-}" in
  "") ;;
  --mpi) packages+=(libopenmpi-dev openmpi-bin) ;;
  --dev) packages+=(clang-format clang-tidy shellcheck python3 ccache git zsh libopenmpi-dev openmpi-bin) ;;
  --fuzz) packages+=(clang libclang-rt-dev) ;;
  --cuda) packages+=(python3-pip) ;;
  --packages) packages+=(libopenmpi-dev python3-pip python3-venv dpkg-dev file git) ;;
  *) echo "setup.sh: unknown option '$1'; options are --mpi, --dev, --fuzz, --cuda and --packages" >&2; exit 2 ;;
esac

# Succeeds if there is a suitable g++. Names and versions are those of CMakeLists.txt.
has_compiler() {
  local name
  for name in g++-12 g++ g++-13 g++-14 g++-15; do
    if command -v $name >/dev/null && [ "$($name -dumpversion | cut -d . -f 1)" -ge 12 ]; then
      return
    fi
  done
  return 1
}

cmake_version() { cmake --version 2>/dev/null | sed -n '1s/.*version \([0-9.]*\).*/\1/p'; }
has_cmake() { [ "$(printf '%s\n' 3.25 "$(cmake_version)" | sort -V | head -n 1)" = 3.25 ]; }

# Succeeds if a tool is available that was not installed as a package.
has_command() {
  case "$1" in
    g++) has_compiler ;;
    cmake) has_cmake ;;
    ninja-build) command -v ninja >/dev/null ;;
    python3-pip) PATH=$third_party/debian/bin/python:$PATH python3 -m pip --version >/dev/null 2>&1 ;;
    clang-format | clang-tidy | shellcheck | python3 | ccache | git | zsh) command -v "$1" >/dev/null ;;
    *) return 1 ;;
  esac
}

# Sets `missing`, and `python_cmake` if cmake and ninja should come from Python packages. A package that an interrupted
# installation left half configured counts as missing.
find_missing() {
  local states package
  states=$'\n'$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" python3-pip 2>/dev/null || true)
  states+=$'\n'$("$scripts/unpack_packages.sh" list | sed 's/$/ installed/')$'\n'
  is_installed() { [[ $states == *$'\n'"$1 installed"$'\n'* ]]; }
  missing=() python_cmake=no
  hash -r  # a new program may precede the one found before on PATH
  for package in "${packages[@]}"; do
    if [ $by_root = yes ] && [[ $states == *$'\n'"$package "@(half|unpacked|triggers)* ]]; then
      missing+=("$package")
      continue
    fi
    case "$package" in
      g++ | cmake | ninja-build) if has_command "$package"; then continue; fi ;;
      *) if is_installed "$package" || has_command "$package"; then continue; fi ;;
    esac
    case "$package" in
      g++) if is_installed g++; then package=g++-12; fi ;;  # in addition to an older version
      cmake | ninja-build)
        if [ $by_root = no ] || is_installed "$package"; then
          python_cmake=yes
          continue
        fi ;;
    esac
    missing+=("$package")
  done
  if [ $python_cmake = yes ] && ! is_installed python3-pip && ! has_command python3-pip &&
     [[ " ${missing[*]} " != *" python3-pip "* ]]; then
    missing+=(python3-pip)
  fi
  # pip is only added to other missing packages: it fetches only what reports need, and training works without it.
  if [ ${#missing[@]} -gt 0 ] && [ $by_root = yes ] && [ ! -e "$third_party/plotly" ] &&
     ! is_installed python3-pip && ! has_command python3-pip && [[ " ${missing[*]} " != *" python3-pip "* ]]; then
    missing+=(python3-pip)
  fi
}
is_ready() { [ ${#missing[@]} -eq 0 ] && [ $python_cmake = no ]; }

need_administrator() {
  echo "setup.sh: missing: ${missing[*]}; $why: ask an administrator to run: apt-get update &&" \
       "apt-get install --yes --no-install-recommends ${missing[*]}" >&2
  exit 2
}

# Sets `as_root`, or `why` to the reason why there is no root access.
find_root() {
  as_root=() why=''
  if ! command -v apt-get >/dev/null; then why="this system has no apt-get"
  elif [ "$(id -u)" -eq 0 ]; then return
  elif ! command -v sudo >/dev/null; then why="not root, and there is no sudo"
  # Without a terminal, sudo would wait for a password forever.
  elif [ -t 0 ] && ! sudo -v; then why="not root, and sudo refused"
  elif ! [ -t 0 ] && ! sudo -n true 2>/dev/null; then
    why="not root, and sudo wants a password and there is no terminal"
  else as_root=(sudo)
  fi
}

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --yes -qq -o DPkg::Lock::Timeout=120 \
    -o Dpkg::Use-Pty=0 "$@"
}
install() { apt install --no-install-recommends "${missing[@]}"; }

install_missing() {
  echo "setup.sh: installing ${missing[*]}"
  # Remains of an interrupted installation would block every other one.
  if [ -n "$(dpkg --audit 2>/dev/null)" ]; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a
  fi
  # Package lists may be empty or outdated: they are updated if the installation fails.
  if ! install --simulate >/dev/null 2>&1 || ! install; then
    apt update || { echo "setup.sh: apt-get update failed (is there a network?)" >&2; exit 3; }
    install || { echo "setup.sh: apt-get could not install ${missing[*]}" >&2; exit 3; }
  fi
}

# A compiler is specific to its machine, and git and Python would need more than their libraries.
unpack_missing() {
  local package refused=() what=()
  for package in "${missing[@]}"; do
    case "$package" in
      g++* | clang | libclang-rt-dev | git | python3) refused+=("$package") ;;
      python3-pip)  # Debian's pip reads the system's certificates, wherever pip itself is
        [ -e "${MUO_GPU_ROOT:-}/etc/ssl/certs/ca-certificates.crt" ] || refused+=(ca-certificates) ;;
    esac
  done
  if [ ${#refused[@]} -gt 0 ]; then missing=("${refused[@]}"); need_administrator; fi
  if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || need_administrator
    what+=("${missing[*]} into $third_party/debian")
  fi
  if [ $python_cmake = yes ]; then what+=("cmake and ninja into $third_party/cmake"); fi
  if [ ${#what[@]} -eq 0 ]; then return; fi
  echo "setup.sh: $why: fetching ${what[0]}${what[1]:+, ${what[1]}}"
  if [ ${#missing[@]} -gt 0 ]; then "$scripts/unpack_packages.sh" "${missing[@]}"; fi
}

# Without these headers, the build lacks only the named feature.
fetch_cuda_headers() {
  command -v nvcc >/dev/null || [ -x "${MUO_GPU_ROOT:-}/usr/local/cuda/bin/nvcc" ] || return 0
  "$scripts/fetch_cuda.sh" frontend ||
    echo "setup.sh: the CUDA backend is therefore built without cuDNN's attention" >&2
  "$scripts/fetch_cuda.sh" cutlass ||
    echo "setup.sh: the CUDA backend is therefore built without fused products" >&2
}

# Fetches the library with which `muograph report` draws. After a failure, does not retry for a day.
fetch_plotly() {
  local failed=$third_party/plotly.failed
  if [ -n "$(find "$failed" -mmin -1440 2>/dev/null)" ]; then return 0; fi
  if [ ! -e "$third_party/plotly" ] && ! has_command python3-pip; then return 0; fi
  if "$scripts/fetch_plotly.sh"; then rm -f "$failed"; return 0; fi
  echo "setup.sh: so there are no charts for muograph report" >&2
  if mkdir -p "$third_party" 2>/dev/null; then : >"$failed"; fi
}

by_root=yes
find_missing
if ! is_ready; then
  find_root
  if [ -n "$why" ]; then
    by_root=no
    find_missing
    unpack_missing
    find_missing
  else
    for _ in 1 2; do  # the first installation may yield versions that are too old
      if [ ${#missing[@]} -gt 0 ]; then install_missing; fi
      find_missing
    done
  fi
  if [ $python_cmake = yes ] && [ ${#missing[@]} -eq 0 ]; then
    if [ $by_root = yes ]; then
      echo "setup.sh: fetching cmake and ninja into $third_party/cmake: 3.25 is needed, and cmake here is" \
           "$(cmake_version)"
    fi
    "$scripts/fetch_cmake.sh"
    find_missing
  fi
  if ! is_ready; then
    echo "setup.sh: apt-get or pip reported success, but these are missing: ${missing[*]:-cmake ninja}" >&2
    exit 3
  fi
fi
fetch_cuda_headers
fetch_plotly
