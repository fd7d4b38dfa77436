# shellcheck shell=bash
# Sourced: what all scripts find in their environment.
# `third_party` is where this clone keeps what was fetched for it, and the programs among that come first on PATH,
# whether they are there yet or not.
third_party="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/third_party"
case ":$PATH:" in
  *":$third_party/cmake/bin:"*) ;;
  *) PATH=$third_party/cmake/bin:$third_party/debian/bin:$PATH ;;
esac
# Tests at once: one more than cores, as some wait; no more than 8, as many have threads of their own.
cores=$(nproc)
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((cores < 8 ? cores + 1 : 8))}
unset cores
