#!/usr/bin/env bash
# Checks that do not run tests: format, layers, tables of results, house rules, shell scripts. Takes seconds.
#   scripts/check.sh                  all of these
#   scripts/check.sh --tidy [FILE...] clang-tidy without its analyzer on the files, or on changes since MUO_BASE
#                                     (default: where the branch left origin/main, else HEAD~1)
#   scripts/check.sh --tidy --half N  clang-tidy with its analyzer on every second source, from the Nth on
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

# Lists tracked and new files that match these patterns, each followed by a zero byte.
listed() {
  git ls-files -z --cached --others --exclude-standard -- "$@" | while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
  done
}

check_all() {
  scripts/setup.sh --dev
  listed '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
  echo "format: ok"
  scripts/check_layers.py
  scripts/draw_architecture.py --check
  scripts/performance_tables.py --check
  listed '*.sh' .ci/run .ci/full | xargs -0 shellcheck
  echo "shellcheck: ok"
  scripts/check_tree.py
  local python
  for python in python3 /usr/bin/python3; do  # the latter has Debian's PyTorch
    if "$python" -c 'import torch' 2>/dev/null; then
      "$python" scripts/golden/make_golden.py --check
      return
    fi
  done
  echo "skipped: golden files not recomputed, because python3 has no PyTorch"
}

# Lists the translation units to check for the changes since the base: changed sources, and for a changed header the
# source with the same name.
changed_sources() {
  local base=${MUO_BASE:-}
  if [ -z "$base" ]; then
    base=$(git merge-base HEAD origin/main 2>/dev/null || true)
    if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
      base=$(git rev-parse --verify --quiet 'HEAD~1' || git hash-object -t tree /dev/null)
    fi
  fi
  {
    git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h'
    git ls-files --others --exclude-standard -- '*.cpp' '*.h'
  } | sources_of
}
# Lists once each of the existing units for the sources and headers on standard input. Skips one for which clang-tidy
# takes ten minutes because of cuDNN frontend headers, and one that redeclares NVIDIA's names to compare them.
sources_of() {
  sed 's/\.h$/.cpp/' | awk '!seen[$0]++' | grep -vE '/cudnn_attention\.|stand_ins/interface\.' | while read -r file; do
    if [ -f "$file" ]; then printf '%s\n' "$file"; fi
  done
}

tidy() {
  scripts/setup.sh --dev
  [ -f build/dev/compile_commands.json ] || cmake --preset dev --log-level=WARNING >/dev/null
  local files=("$@") less=(--checks=-clang-analyzer-*)  # the analyzer takes nearly half of the time
  if [ "${1:-}" = --half ]; then
    mapfile -t files < <(git ls-files '*.cpp' | sources_of | sed -n "$2~2p")
    less=()
  elif [ ${#files[@]} -eq 0 ]; then mapfile -t files < <(changed_sources); fi
  if [ ${#files[@]} -eq 0 ]; then
    echo "tidy: no changed sources"
    return
  fi
  echo "tidy: ${#files[@]} files"
  # Writes the compile database without options that only g++ supports and without g++'s precompiled headers.
  mkdir -p build/tidy
  sed 's/ -fno-extern-tls-init//; s/ -Winvalid-pch -include [^ ]*//' build/dev/compile_commands.json >build/tidy/compile_commands.json
  # Findings are on standard output. Counts of suppressed warnings in system headers, on standard error, are discarded.
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P 2 timeout 300 clang-tidy -p build/tidy --quiet "${less[@]}" \
      --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings\? generated\.$' >&2)
  echo "tidy: ok"
}

case "${1:-}" in
  "") check_all ;;
  --tidy) shift; tidy "$@" ;;
  *) echo "check.sh: unknown option '$1'; see the head of the script" >&2; exit 2 ;;
esac
