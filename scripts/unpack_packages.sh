#!/usr/bin/env bash
# Downloads Debian or Ubuntu packages, with their missing dependencies, from the machine's package sources and unpacks
# them into build/third_party/debian, for users who cannot install packages. CMakeLists.txt searches that folder.
# scripts/path.sh puts its programs on PATH except for Python, which is only used for pip (scripts/python_packages.sh),
# because processes that Python starts by its own name would lack its libraries.
#   scripts/unpack_packages.sh PACKAGE...
#   scripts/unpack_packages.sh list      prints the packages that were requested before and are complete
# bin/packages in the folder holds the list. An interrupted call changes nothing in bin/, and the next one unpacks its
# packages again.
# Exit codes: 0 available; 3 not available (one line on standard error says why and what to do).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/path.sh"
debian=$third_party/debian
own=$third_party/apt  # apt's lists and downloads; the system's are not writable
programs=(python/python3 clang-format clang-tidy shellcheck ccache)

fail() { echo "unpack_packages.sh: $*" >&2; exit 3; }

# The first line of bin/packages is the release of the packages.
release=$(sed -n 's/^\(ID\|VERSION_ID\)=//p' /etc/os-release | paste -s -d ' ')
list() {
  if [ "$(head -n 1 "$debian/bin/packages" 2>/dev/null)" = "$release" ]; then tail -n +2 "$debian/bin/packages"; fi
}

apt() {
  apt-get --yes -qq -o Dir::State="$own/state" -o Dir::State::status=/var/lib/dpkg/status \
    -o Dir::Cache="$own/cache" -o Debug::NoLocking=1 -o Acquire::Languages=none "$@" 2>&1 </dev/null
}

download() {
  local output
  rm -rf "$own"
  mkdir -p "$own"/{state/lists,cache/archives}/partial
  # Errors are noticed below: hooks that run after an update may need root and fail.
  output=$(apt update) || true
  output+=$'\n'$(apt install --download-only --no-install-recommends "$@") ||
    fail "apt-get cannot download $*: $(grep -m 1 'Failed to fetch' <<<"$output" || tail -n 1 <<<"$output"):" \
         "repeat the command once network and disk work"
}

unpack() {
  local package output
  for package in "$own"/cache/archives/*.deb; do
    case "${package##*/}" in
      libc6* | libc-* | libgcc* | libstdc++* | gcc-*) continue ;;  # belong to the compiler
    esac
    output=$(dpkg-deb -x "$package" "$debian" 2>&1) || fail "cannot unpack ${package##*/}: $output"
  done
}

# If the library of a development package was already installed on the machine, links the name with which programs are
# linked, and the file that CMake's targets name.
link_installed_libraries() {
  local link installed name
  while read -r link; do
    installed=${link#"$debian"}
    installed=${installed%/*}/$(readlink "$link")
    [ -e "$installed" ] || continue
    for name in "$installed" "$(readlink -f "$installed")"; do
      ln -sf "$installed" "${link%/*}/${name##*/}"
    done
  done < <(find "$debian" -name 'lib*.so' -xtype l)
}

# Writes wrappers that set the paths of the programs' libraries and modules.
write_programs() (
  shopt -s nullglob
  local program libraries modules path
  cd "$debian"
  folders() { printf ":\$here/%s" "$@"; }
  libraries=$(folders {usr/,}lib/*-linux-gnu/)
  # Some of Python's own modules are in packages, too.
  modules=$(folders usr/lib/python3*/{,dist-packages/})
  rm -rf bin.new bin.old
  mkdir -p bin.new/python
  for program in "${programs[@]}"; do
    path=usr/bin/${program##*/}
    if [ -e "$path" ]; then path=\$here/$path
    elif [ "$path" = usr/bin/python3 ] && [ -e usr/lib/python3/dist-packages/pip ]; then path=/$path
    else continue
    fi
    cat >"bin.new/$program" <<SCRIPT
#!/bin/sh
# Written by scripts/unpack_packages.sh.
here=\${0%/$program}/..
export LD_LIBRARY_PATH="${libraries#:}\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export PYTHONPATH="${modules#:}\${PYTHONPATH:+:\$PYTHONPATH}"
exec "$path" "\$@"
SCRIPT
    chmod +x "bin.new/$program"
  done
)

[ $# -gt 0 ] || fail "give package names, or list"
if [ "$1" = list ]; then list; exit; fi
{ mkdir -p "$debian" && : >"$third_party/.debian.lock"; } 2>/dev/null || fail "cannot write to $third_party"
exec 9>"$third_party/.debian.lock"
flock 9
wanted=()
for package; do
  if ! list | grep -qxF "$package"; then wanted+=("$package"); fi
done
if [ ${#wanted[@]} -eq 0 ]; then exit 0; fi  # another call has unpacked them meanwhile
download "${wanted[@]}"
mapfile -t there < <(list)
if [ ${#there[@]} -eq 0 ]; then rm -rf "$debian" && mkdir "$debian"; fi  # of another release, or incomplete
unpack
link_installed_libraries
write_programs
cd "$debian"
printf '%s\n' "$release" "${there[@]}" "${wanted[@]}" >bin.new/packages
if [ -e bin ]; then mv bin bin.old; fi
mv bin.new bin
rm -rf bin.old "$own"
