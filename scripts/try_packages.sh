#!/usr/bin/env bash
# Tests the wheel of build/packages in a virtual environment without a compiler: the first training step must finish
# within a minute; then every command runs that needs a bundled library or file. As root it also tests the system's MPI
# and, on Debian 12, the Debian packages. It installs and removes packages, so it runs in a chroot with python3-venv
# (scripts/try_in_chroot.sh --packages SUITE).
#   scripts/try_packages.sh
# Prints one line of JSON. Exit codes: 0 success, 1 failure (one line on standard error describes it).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/try_program.sh

for name in cc c++ gcc g++ clang cmake ninja; do
  if command -v $name >/dev/null; then fail "$name is installed, but this must be tested without it"; fi
done
packages=$PWD/build/packages golden=$PWD/tests/golden
(cd "$packages" && quietly sha256sum --check SHA256SUMS)
# Text that exists on every such machine.
text=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
venv=$folder/venv
program=$venv/bin/muograph

# Fails unless the output of the last command matches the basic regular expression $1.
expect() { grep -q -- "$1" "$log" || fail "no '$1' in the output: $(tail -n 5 "$log")"; }
seconds_since() { echo "$(date +%s.%N) $1" | awk '{printf "%.1f", $1 - $2}'; }

cd "$folder"
begin=$(date +%s.%N)
quietly python3 -m venv "$venv"
quietly "$venv/bin/pip" install --no-index "$packages"/muograph-[0-9]*.whl
install_seconds=$(seconds_since "$begin")
"$program" train --data "$text" --config quick.toml --num-iterations 5 --out first >"$log" 2>&1 &
until grep -qs '"kind":"train"' first/metrics.jsonl; do
  kill -0 $! 2>/dev/null || { wait $! || fail "training: $(tail -n 5 "$log")"; }
  sleep 0.1
done
first_step_seconds=$(seconds_since "$begin")
wait $!
[ "${first_step_seconds%.*}" -lt 60 ] || fail "the first step ended $first_step_seconds s after the installation began"
installed=$(echo "$venv"/lib/python3*/site-packages)

quietly "$program" doctor
kernels=$(sed -n 's/^host kernels *//p' "$log")
if grep -q avx512bw /proc/cpuinfo; then
  [[ $kernels = AVX-512* ]] || fail "doctor: host kernels '$kernels' on a CPU with AVX-512"
fi
GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F quietly "$program" doctor
expect '^host kernels *AVX2'
# Every library that the core and its plug-ins load is in the wheel, except those of the system and MPI.
find "$installed/muograph" -name '*.so' ! -name libmuograph_mpi.so -exec ldd {} + >"$log"
if foreign=$(grep '=>' "$log" | grep -vE "=> $installed/|lib(c|m|z|gcc_s|stdc\+\+)\.so"); then
  fail "libraries of other packages: $foreign"
fi
bundled_mib=$(($(du --bytes --summarize "$installed/muograph.libs" | cut -f 1) >> 20))

try_program "$program" "$text"
grep -q 'plotly.js v' "$folder/run/report.html" || fail "report.html has no plotly.js"
quietly "$program" train --resume first --num-iterations 8
expect '^trained 3 steps'
quietly "$program" sample first --prompt "def "
quietly "$program" checkpoint export --checkpoint first --out exported
quietly "$program" tokenizer train --data "$text/json" --vocab-size 400 --out tokenizer.json
quietly "$program" train --data "$text/json" --tokenizer tokenizer.json --config quick.toml --num-iterations 2 --out tokens
# Loads the plug-ins of SentencePiece and, through a pattern that PCRE2 cannot handle, of Oniguruma.
encode() { "$program" tokenizer encode --tokenizer "$1" >"$log" 2>&1 <<<"Hello, world!" || fail "$1: $(tail -n 1 "$log")"; }
encode "$golden/sentencepiece/llama.model"
expect '^529 75 365 542 534 548 268 275 542 538 576'
sed 's/{1,2}/{2,3}/' "$golden/tokenizer/tokenizer.json" >own.json
LD_DEBUG=libs encode own.json
expect 'calling init: .*/libmuograph_oniguruma.so'
expect '^[0-9][0-9 ]*$'
quietly "$installed/muograph/share/muograph/scripts/plot_curve.py" curve.svg first
quietly "$installed/muograph/share/muograph/scripts/convert_nanogpt_data.py" --help

debian_packages=false
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  programs=("$program")
  quietly apt-get install --yes --no-install-recommends openmpi-bin
  if [ "$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" = bookworm ]; then
    debian_packages=true
    quietly apt-get install --yes --no-install-recommends "$packages"/*.deb
    try_program /usr/bin/muograph "$text"
    quietly /usr/share/muograph/scripts/plot_curve.py curve.svg "$folder/run/out"
    programs+=(/usr/bin/muograph)
  fi
  for one in "${programs[@]}"; do
    rm -rf processes
    quietly mpirun --oversubscribe -n 2 "$one" train --data "$text/json" --config quick.toml --num-iterations 2 \
      --devices 1 --out processes
    expect '2 processes'
  done
  if "$debian_packages"; then
    quietly apt-get remove --yes muograph muograph-mpi
    for left in /usr/bin/muograph /usr/lib/muograph /usr/share/muograph; do
      [ ! -e "$left" ] || fail "apt-get remove muograph left $left behind"
    done
  fi
fi

with_cuda=false
if compgen -G "$packages/muograph_cuda-*.whl" >"$log"; then  # the plug-in must be found; loading then fails for lack of cuBLAS
  with_cuda=true
  quietly "$venv/bin/pip" install --no-index --no-deps "$packages"/muograph_cuda-*.whl
  quietly "$program" doctor
  expect '^CUDA backend  not usable: libmuograph_cuda.so does not load: libcublasLt.so.13: cannot open'
  quietly "$venv/bin/pip" uninstall --yes muograph-cuda
fi
version=$("$program" --version)
quietly "$venv/bin/pip" uninstall --yes muograph
left=$(find "$venv" -iname '*muograph*')
[ -z "$left" ] || fail "pip uninstall left $left behind"
printf '{"version":"%s","host_kernels":"%s","install_seconds":%s,"first_step_seconds":%s,"bundled_mib":%d,"debian_packages":%s,"cuda_wheel":%s}\n' \
  "$version" "$kernels" "$install_seconds" "$first_step_seconds" "$bundled_mib" "$debian_packages" "$with_cuda"
