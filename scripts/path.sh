# shellcheck shell=bash
# Sourced: `third_party` is where this clone keeps what was fetched for it, and the programs among that come
# first on PATH, whether they are there yet or not.
third_party="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/third_party"
case ":$PATH:" in
  *":$third_party/cmake/bin:"*) ;;
  *) PATH=$third_party/cmake/bin:$third_party/debian/bin:$PATH ;;
esac
