#!/usr/bin/env bash
# Installs muograph in three ways, and with each one trains for 5 steps and makes a report: with `cmake --install` into
# a folder, which is then moved; as a Debian package, which is removed again; and with pip in a virtual environment. It
# installs and removes packages, so use a chroot (scripts/try_in_chroot.sh --install SUITE) or a disposable machine.
#   scripts/try_install.sh     as root
# Prints one line of JSON. Exit codes: 0 success, 1 failure (one line on standard error describes it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

source scripts/try_program.sh

begin=$SECONDS
quietly scripts/setup.sh
quietly cmake --preset release
quietly cmake --build --preset release
quietly cmake --install build/release --prefix "$folder/first" --strip
mv "$folder/first" "$folder/moved"
try_program "$folder/moved/bin/muograph" /usr/include/*.h
version=$("$folder/moved/bin/muograph" --version)
kernels=$("$folder/moved/bin/muograph" doctor | sed -n 's/^host kernels *//p')
bash -c 'PATH=$1/bin:$PATH; source "$1/share/bash-completion/completions/muograph"
         COMP_WORDS=(muograph tr) COMP_CWORD=1; _muograph; [ "${COMPREPLY[*]}" = train ]' bash "$folder/moved" ||
  fail "bash does not complete 'muograph tr'"
install_seconds=$((SECONDS - begin))

begin=$SECONDS
quietly apt-get install --yes --no-install-recommends dpkg-dev file
quietly cpack --config build/release/CPackConfig.cmake -B "$folder"
packages=("$folder"/*.deb)
quietly dpkg --install "${packages[@]}"
try_program /usr/bin/muograph /usr/include/*.h
needs=$(dpkg-query -W -f '${Depends}' muograph)
installed=(muograph)
for part in cuda mpi; do
  if dpkg-query -W "muograph-$part" >/dev/null 2>&1; then installed+=("muograph-$part"); fi
done
quietly dpkg --remove "${installed[@]}"
for left in /usr/bin/muograph /usr/lib/muograph /usr/share/muograph; do
  [ ! -e "$left" ] || fail "dpkg --remove muograph left $left behind"
done
package_seconds=$((SECONDS - begin))

begin=$SECONDS
quietly apt-get install --yes --no-install-recommends python3-venv
quietly python3 -m venv "$folder/venv"
quietly "$folder/venv/bin/pip" install .
try_program "$folder/venv/bin/muograph" /usr/include/*.h
[ "$("$folder/venv/bin/muograph" --version)" = "$version" ] || fail "pip's muograph is not of version $version"
# The plug-in must find libraries that NVIDIA's packages install beside it; a copy of one library simulates them.
plug_in=$(find "$folder/venv" -name libmuograph_cuda.so)
beside=none
if [ -n "$plug_in" ]; then
  nvidia=$(cd "$(dirname "$plug_in")/../../.." && pwd)/nvidia/cu13/lib
  mkdir -p "$nvidia"
  cp "$(ldd "$plug_in" | awk '$1 ~ /^libcublasLt/ {print $3}')" "$nvidia"
  ldd "$plug_in" | grep -qF "$nvidia/libcublasLt" || fail "$plug_in does not find cuBLAS in $nvidia"
  beside=found
fi
pip_seconds=$((SECONDS - begin))

printf '{"date":"%s","version":"%s","debian":"%s","host_kernels":"%s","install_seconds":%d,' \
  "$(date +%F)" "$version" "$(cat /etc/debian_version)" "$kernels" $install_seconds
printf '"package_seconds":%d,"package_mib":%d,"package_needs":"%s","pip_seconds":%d,"cuda_libraries_of_pip":"%s"}\n' \
  $package_seconds $(($(stat -c %s "${packages[@]}" | paste -sd +) >> 20)) "$needs" $pip_seconds "$beside"
