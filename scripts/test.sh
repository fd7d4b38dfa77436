#!/usr/bin/env bash
# Installs what is missing, builds, runs every test.
#   scripts/test.sh [--slow] [ctest options]     --slow: long tests too
# e.g. scripts/test.sh -R runtime --rerun-failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

arguments=()
for argument in "$@"; do
  if [ "$argument" = --slow ]; then export MUO_SLOW=1; else arguments+=("$argument"); fi
done

scripts/setup.sh
cmake --preset dev --log-level=WARNING >/dev/null
cmake --build --preset dev
ctest --preset dev "${arguments[@]}"
