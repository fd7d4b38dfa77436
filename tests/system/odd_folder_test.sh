#!/usr/bin/env bash
# Tests a folder whose name has spaces and non-ASCII letters, below folders with the names of our source folders: the
# core is built from the same sources, and sources can be generated. `.ci/full odd_folder` builds and trains there.
#   tests/system/odd_folder_test.sh BUILD
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
odd="$folder/cuda/kernels/host/a b+ü (1)"
mkdir -p "$odd/build"
cp -R CMakeLists.txt src model optim graphs data tests configs docs "$odd"
if [ -d build/third_party ]; then ln -s "$PWD/build/third_party" "$odd/build"; fi

# Lists what build $1 compiles, relative to the tree: the unity sources, then the objects in its compile_commands.json,
# each with its target.
sources() {
  if [ -d "$1/united" ]; then sort "$1"/united/*.cpp; fi
  sed -n 's/.* -o \(CMakeFiles\/muograph_[a-z0-9_]*[.]dir\/\(src\|model\|optim\|graphs\|data\)\/[^ ]*\) -c .*/\1/p' \
    "$1/compile_commands.json" | grep -v '^CMakeFiles/muograph_\(cuda\|mpi\|sentencepiece\|oniguruma\)' | sort
}
united=$(grep '^MUO_UNITY:' "$1/CMakeCache.txt")
cmake -S "$odd" -B "$odd/build" -G Ninja "-D$united" -DMUO_TESTS=OFF -DMUO_BENCH=OFF -DMUO_CUDA=OFF --log-level=WARNING >/dev/null
want=$(sources "$1")
[ "$(wc -l <<<"$want")" -gt 200 ] || { echo "odd_folder_test.sh: too few sources found in $1" >&2; exit 1; }
diff <(printf '%s\n' "$want") <(sources "$odd/build")
cmake --build "$odd/build" --target report_page.cpp model_code.cpp coming_from.cpp muograph_version >"$folder/log" ||
  { cat "$folder/log" >&2; exit 1; }
