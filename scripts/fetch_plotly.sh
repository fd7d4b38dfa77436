#!/usr/bin/env bash
# Fetches plotly.js, which `muograph report` embeds in its pages, from its Python package with pip, to
# build/third_party/plotly/plotly.min.js. Prints nothing if the file exists.
# Exit codes: 0 available; 3 not available (one line on standard error says why and what to do).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/path.sh"
source "$(dirname "${BASH_SOURCE[0]}")/python_packages.sh"
# shellcheck disable=SC2034  # printed by python_packages.sh
instead="give muograph report your own plotly.js with --plotly FILE" any_machine=yes

packages() {
  cat <<'TABLE'
plotly 6.9.0 36bebe2f1bb13884774fe61689c329071446f6ce4a8927fb1f0d6fb24f581236 10 45
TABLE
}

to=$third_party/plotly
begin plotly "$to"
fetch plotly "$to.new"
all=$to.new/all from=$to.new/plotly
mkdir -p "$from"
mv "$all/plotly/package_data/plotly.min.js" "$from/"
cp -r "$all"/*.dist-info/licenses "$from/"
publish plotly "$from" "$to"
