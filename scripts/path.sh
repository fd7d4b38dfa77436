# shellcheck shell=bash
# Sourced: `third_party` is where this clone keeps what was fetched for it, and the programs among that come
# first on PATH, whether they are there yet or not.
third_party="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/third_party"
case $third_party in
  *[\'\"\$\`\\\;\#]* | *$'\n'*)
    echo "muograph cannot be built in $third_party: its name has a quote, \$, \`, \\, ;, # or a line's end; move the clone" >&2
    exit 2
    ;;
esac
case ":$PATH:" in
  *":$third_party/cmake/bin:"*) ;;
  *) PATH=$third_party/cmake/bin:$third_party/debian/bin:$PATH ;;
esac
# `--fresh` if build/PRESET was configured in another folder, as that of a clone that was copied or moved was.
fresh_if_moved() {
  local before
  if before=$(grep -s '^CMAKE_HOME_DIRECTORY:' "build/$1/CMakeCache.txt") && ! [ "${before#*=}" -ef . ]; then
    echo --fresh
  fi
}
