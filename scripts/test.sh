#!/usr/bin/env bash
# Installs what is missing, builds, runs every test.
#   scripts/test.sh [--slow] [--preset NAME] [ctest options]
#     --slow         long tests too
#     --preset NAME  asan or tsan: under sanitizers, without the tests that would find nothing more there
# e.g. scripts/test.sh -R runtime --rerun-failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

preset=dev
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --slow) export MUO_SLOW=1 ;;
    --preset) preset=${2:-}; if [ $# -gt 1 ]; then shift; fi ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
case "$preset" in
  dev) ;;
  asan) export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 ;;
  tsan) export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/thread_sanitizer.supp" ;;
  *) echo "test.sh: --preset takes dev, asan or tsan, not '$preset'" >&2; exit 2 ;;
esac
# ThreadSanitizer's shadow memory of g++ 12 does not fit kernels that randomise addresses widely.
fixed_addresses=()
if [ "$preset" != dev ] && setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
# One test more than cores at once, as some wait; no more than 8, as many have threads of their own.
cores=$(nproc)
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((cores < 8 ? cores + 1 : 8))}

scripts/setup.sh
cmake --preset "$preset" --log-level=WARNING >/dev/null
"${fixed_addresses[@]}" cmake --build --preset "$preset"
"${fixed_addresses[@]}" ctest --preset "$preset" "${arguments[@]}"
