#!/usr/bin/env bash
# Fetches cmake and ninja from Python packages with pip into build/third_party/cmake; scripts/path.sh adds its bin/ to
# PATH. Prints nothing if they already exist.
# Exit codes: 0 available; 3 not available (one line on standard error says why and what to do).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/path.sh"
source "$(dirname "${BASH_SOURCE[0]}")/python_packages.sh"
# shellcheck disable=SC2034  # printed by python_packages.sh
instead="put cmake 3.25 or newer, and ninja, on PATH"

packages() {
  cat <<'TABLE'
cmake 3.31.10 2f766bb46367e5e0559fa33184653754bce044583a06014dcaebf8e6dff8a1f1 28 68
ninja 1.13.0  fb46acf6b93b8dd0322adc3a4945452a4e774b75b91293bafcc7b7f8e6517dfa  1  1
TABLE
}

to=$third_party/cmake
begin cmake "$to"
fetch cmake "$to.new"
all=$to.new/all from=$to.new/all/cmake/data
cp "$all"/ninja-*.data/scripts/ninja "$from/bin/"
chmod +x "$from"/bin/*  # Python's zipfile does not restore file modes
mkdir -p "$from/licenses"
cp -r "$all"/*.dist-info "$from/licenses"
publish cmake "$from" "$to"
