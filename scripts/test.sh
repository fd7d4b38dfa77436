#!/usr/bin/env bash
# Installs missing dependencies, builds, and runs all tests.
#   scripts/test.sh [--slow] [--preset NAME] [ctest options]
#     --slow         also runs long tests
#     --preset NAME  asan or tsan: with sanitizers, without the tests to which these add nothing
#   scripts/test.sh --gate [plain|asan|tsan]
#     the tests of CI: runs each test once, in the build that proves most (tests/run_in.cmake); one build, or all three
# Example: scripts/test.sh -R runtime --rerun-failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

presets=(dev)
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --slow) export MUO_SLOW=1 ;;
    --preset)
      case "${2:-}" in
        dev | asan | tsan) presets=("$2"); shift ;;
        *) echo "test.sh: --preset takes dev, asan or tsan, not '${2:-}'" >&2; exit 2 ;;
      esac ;;
    --gate)
      case "${2:-}" in
        plain | asan | tsan) presets=("gate-$2"); shift ;;
        *) presets=(gate-plain gate-asan gate-tsan) ;;
      esac ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# One parallel test more than cores, because some tests wait; at most 8, because many tests have several threads.
cores=$(nproc)
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((cores < 8 ? cores + 1 : 8))}
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/thread_sanitizer.supp"
if [[ ${presets[0]} == gate-* ]]; then
  # The schedule of the SIMT tier and the selected cases of the most expensive tests depend only on the state of the
  # sources.
  hash=$(find src model optim graphs data tests -type f ! -path '*/results/*' -print0 | LC_ALL=C sort -z |
         xargs -0 cat | cksum | cut -d ' ' -f 1)
  orders=(seq rev "$hash" "$hash" "$hash" "$hash")
  export SIMT_ORDER=${SIMT_ORDER:-${orders[hash % 6]}} MUO_DRAW=${MUO_DRAW:-$hash}
  echo "SIMT_ORDER=$SIMT_ORDER MUO_DRAW=$MUO_DRAW"
fi

# Builds and tests a preset and prints how long each took. A failure does not prevent the next preset.
failed=()
run() {
  local preset=$1 fixed_addresses=() begin=$SECONDS built
  # The shadow memory of g++ 12's ThreadSanitizer does not fit kernels with wide address randomization.
  if [[ $preset == *san ]] && setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
  local moved
  moved=$(fresh_if_moved "$preset")
  cmake --preset "$preset" ${moved:+"$moved"} --log-level=WARNING >/dev/null
  "${fixed_addresses[@]}" cmake --build --preset "$preset"
  built=$SECONDS
  "${fixed_addresses[@]}" ctest --preset "$preset" "${arguments[@]}" || failed+=("$preset")
  echo "test.sh: $preset: built in $((built - begin)) s, tested in $((SECONDS - built)) s"
}

scripts/setup.sh
for preset in "${presets[@]}"; do run "$preset"; done
if [ ${#failed[@]} -gt 0 ]; then
  echo "test.sh: tests failed in: ${failed[*]}" >&2
  exit 1
fi
