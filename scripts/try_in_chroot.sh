#!/usr/bin/env bash
# Tests both commands of the README on a bare Debian: creates a chroot with debootstrap and a clone of HEAD in it, and
# runs there, as root, scripts/train.sh for 20 steps, then scripts/test.sh. Needs root, debootstrap and a Debian with a
# working apt, whose mirror and settings the chroot uses. All files are in build/chroot.
#   scripts/try_in_chroot.sh [--until train|build] [--ctest OPTION]... [--user] [--gpu] SUITE
#   scripts/try_in_chroot.sh --install|--packages SUITE
#     SUITE           bookworm (Debian 12), trixie (13) or later
#     --until train   skips scripts/test.sh; build: builds the tests but does not run them
#     --ctest OPTION  an additional option for scripts/test.sh
#     --user          runs as an ordinary user without sudo; the installed packages are g++, libfmt without its
#                     headers, and root's certificates
#     --gpu           adds a fake nvidia-smi that lists an H100, without a CUDA toolkit: train.sh fetches one from
#                     Python packages and builds the plug-in; the run prints why the GPU is unusable and uses the CPU
#     --install       runs scripts/try_install.sh instead of the two commands
#     --packages      runs scripts/try_packages.sh instead, as root and as an ordinary user, with the packages that
#                     scripts/make_packages.sh left in build/packages
# If CCACHE_DIR is set, the chroot compiles with that cache: repeated runs are fast, and their times do not represent a
# fresh machine.
# Prints one line of JSON. Exit codes: 0 all passed, 1 failures (the logs are named), 2 usage or no chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/bare_debian.sh

usage() { echo "try_in_chroot.sh: $1" >&2; exit 2; }
until=
suite=
gpu=false install=false packages=false
user=root
ctest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --until) until=${2:-}; shift
      case "$until" in train | build) ;; *) usage "--until takes train or build, not '$until'" ;; esac ;;
    --ctest) [ $# -ge 2 ] || usage "--ctest needs an option"; ctest+=("$2"); shift ;;
    --user) user=somebody ;;
    --gpu) gpu=true ;;
    --install) install=true ;;
    --packages) packages=true ;;
    -*) usage "unknown option '$1'; see the head of the script" ;;
    *) [ -z "$suite" ] || usage "give only one SUITE, not '$suite' and '$1'"; suite=$1 ;;
  esac
  shift
done
[ -n "$suite" ] || usage "give SUITE: bookworm or trixie"
if "$packages" && [ ! -e build/packages/SHA256SUMS ]; then usage "no build/packages: run scripts/make_packages.sh"; fi
if [ "$until" = build ]; then ctest+=(--show-only); fi

make_chroot "$suite"
if "$gpu"; then
  printf '#!/bin/bash\necho "9.0, 580.65.06, GPU-1, NVIDIA H100 80GB HBM3"\n' >"$chroot/usr/bin/nvidia-smi"
  chmod +x "$chroot/usr/bin/nvidia-smi"
  : >"$chroot/dev/nvidia0"
fi
if "$packages"; then
  for user in root somebody; do
    clone_for "$user"
    if [ "$user" = root ]; then
      try python3_venv sh -c 'apt-get update && apt-get install --yes --no-install-recommends python3-venv'
      result="\"python3_venv_seconds\":$seconds"
      if [ "$code" -ne 0 ]; then break; fi
    fi
    mkdir "$clone/build"
    cp -r build/packages "$clone/build/"
    try "packages.$user" scripts/try_packages.sh
    result+=",\"$user\":$(grep '^{' "$log.packages.$user.log" || echo null)"
    if [ "$code" -ne 0 ]; then break; fi
  done
  printf '{"suite":"%s","commit":"%s","date":"%s","debian":"%s","wheel_mib":%d,%s}\n' "$suite" "$commit" "$(date +%F)" \
    "$(cat "$chroot/etc/debian_version")" $(($(stat -c %s build/packages/muograph-*.whl) >> 20)) "$result"
  exit $((code != 0))
fi
clone_for "$user"

installed=()
if [ "$user" != root ]; then installed+=(g++ libfmt-dev); fi
if [ -n "${CCACHE_DIR:-}" ]; then installed+=(ccache); fi
if [ ${#installed[@]} -gt 0 ]; then
  inside root sh -c 'apt-get update && apt-get install --yes --no-install-recommends "$@"' sh "${installed[@]}" \
    >"$log.installed.log" 2>&1 || usage "could not install ${installed[*]}: $log.installed.log"
fi
if [ "$user" != root ]; then
  inside root dpkg --remove libfmt-dev >>"$log.installed.log" 2>&1
fi
if "$install"; then
  try install scripts/try_install.sh
  sed -n "s/^{/{\"suite\":\"$suite\",\"commit\":\"$commit\",/p" "$log.install.log"
  exit $((code != 0))
fi
try train scripts/train.sh --num-iterations 20
result="\"train_code\":$code,\"train_seconds\":$seconds"
worst=$code
if "$gpu"; then
  built=$clone/build/release
  plug_in=$built/libmuograph_cuda.so
  [ -e "$plug_in" ] || worst=1
  first=$(grep -m 1 "^GPU" "$log.train.log" || true)
  [ -n "$first" ] || worst=1
  cudnn=$(grep -c MUO_CUDNN "$built/compile_commands.json" || true)
  result+=",\"plug_in_mib\":$(($(stat -c %s "$plug_in" 2>/dev/null || echo 0) >> 20)),\"with_cudnn\":$([ "$cudnn" -gt 0 ] && echo true || echo false)"
  result+=",\"first_line\":\"${first//\"/\\\"}\""
fi
if [ "$until" != train ] && [ "$worst" -eq 0 ]; then
  try test scripts/test.sh "${ctest[@]}"
  worst=$code
  result+=",\"test_code\":$code,\"test_seconds\":$seconds"
  # Parses "99% tests passed, 3 tests failed out of 1289", and the lines of skipped tests.
  tests=$(sed -n 's/.* tests passed, .* out of \([0-9]*\)$/\1/p' "$log.test.log")
  if [ -n "$tests" ]; then
    failed=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed.*/\1/p' "$log.test.log")
    skipped=$(grep -cE "Test +#[0-9]+: .*[*]{3}Skipped" "$log.test.log" || true)
    result+=",\"tests\":$tests,\"passed\":$((tests - failed - skipped)),\"failed\":$failed,\"skipped\":$skipped"
  fi
fi

# shellcheck disable=SC2016  # the inner shell's variables
versions=$(inside "$user" bash -c '
  source scripts/path.sh
  compiler=$(sed -n "s/^CMAKE_CXX_COMPILER:[A-Z]*=//p" build/release/CMakeCache.txt)
  library=$(realpath "$(sed -n "s/^DNNL:[A-Z]*=//p" build/release/CMakeCache.txt)")
  printf "\"compiler\":\"%s\",\"cmake\":\"%s\",\"onednn\":\"%s\"" "$($compiler --version | head -n 1)" \
    "$(cmake --version | sed "s/cmake version //;q")" "${library##*.so.}"' 2>/dev/null || true)
printf '{"date":"%s","commit":"%s","suite":"%s","debian":"%s","user":"%s",%s"cores":%d,"ccache":%s,%s}\n' \
  "$(date +%F)" "$commit" "$suite" "$(cat "$chroot/etc/debian_version")" "$user" \
  "${versions:+$versions,}" "$(nproc)" "$([ -n "${CCACHE_DIR:-}" ] && echo true || echo false)" "$result"
[ "$worst" -eq 0 ]
