#!/usr/bin/env bash
# Installs what is missing, builds for this CPU, trains. Without --data: a small model on the C and
# C++ headers of this machine, sized by configs/quick.toml.
#   scripts/train.sh [options of `muograph train`]
# e.g. scripts/train.sh --data my.txt --num-iterations 500
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

scripts/setup.sh
cmake --preset release --log-level=WARNING -DMUO_NATIVE=ON >/dev/null
cmake --build --preset release --target muograph

defaults=(--config "$root/configs/quick.toml")
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' build/release/CMakeCache.txt)
version=$("$compiler" -dumpversion | cut -d . -f 1)
# On every machine that can build; the order is the shell's, whatever the language of the user.
export LC_COLLATE=C
text=(--data /usr/include/*.h /usr/include/asm-generic /usr/include/linux
      /usr/include/x86_64-linux-gnu/{asm,bits,sys} "/usr/include/c++/$version" --data-max-bytes 12000000)
before=
for argument in "$@"; do
  case "$before$argument" in
    --data | --data=*) text=() ;;
    --config | --config=*) defaults=() text=() ;;
    --resume) before=--resume= && continue ;;
    --resume=auto) ;;  # repeats a command that may have been started already
    --resume=*) defaults=() text=() ;;  # a directory brings its options along
  esac
  before=
done
cd "$here"  # the paths of the user are relative to where they are
exec "$root/build/release/muograph" train "${defaults[@]}" "${text[@]}" "$@"
