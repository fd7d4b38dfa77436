# shellcheck shell=bash
# Sourced: sets `third_party`, the folder for everything fetched for this clone, and puts its programs first on PATH,
# whether they exist yet or not.
third_party="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/third_party"
case $third_party in
  *[\'\"\$\`\\\;\#]* | *$'\n'*)
    echo "muograph cannot be built in $third_party: its path contains a quote, \$, \`, \\, ;, # or a newline; move the clone" >&2
    exit 2
    ;;
esac
case ":$PATH:" in
  *":$third_party/cmake/bin:"*) ;;
  *) PATH=$third_party/cmake/bin:$third_party/debian/bin:$PATH ;;
esac
# Prints `--fresh` if build/PRESET was configured in another folder, for example in a clone that was then copied or
# moved.
fresh_if_moved() {
  local before
  if before=$(grep -s '^CMAKE_HOME_DIRECTORY:' "build/$1/CMakeCache.txt") && ! [ "${before#*=}" -ef . ]; then
    echo --fresh
  fi
}
