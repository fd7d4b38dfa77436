#!/usr/bin/env bash
# Tests and measures muograph on the NVIDIA GPUs of this machine: builds it for them, trains, and runs every test, check
# and benchmark of scripts/gpu_check.sh, including those for several GPUs if there are several. Takes about an hour.
# Nothing is sent anywhere: docs/status.md explains how to contribute the results.
#   scripts/prove_gpu.sh [--minutes N] [--nanochat CHECKOUT] [--pack FOLDER] [OUT]
#     --minutes N           no stage begins later than N minutes after the build
#     --nanochat CHECKOUT   also measures nanochat's newest commit there, if PyTorch is installed
#     --pack FOLDER         uses an unpacked archive of scripts/gpu_pack.sh instead of building
#     OUT                   default build/gpu_proof; it must not exist
# Exit codes: 0 all passed; 1 a stage failed, but OUT is complete; 2 nothing could be run.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

refuse() { echo "prove_gpu.sh: $1" >&2; exit 2; }
absolute() { (cd "$caller" && realpath -m "$1"); }
minutes='' pack='' out=$PWD/build/gpu_proof packing=()
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=${2:?--minutes needs a number}; shift
      [[ $minutes =~ ^[1-9][0-9]*$ ]] || refuse "--minutes takes a whole number >= 1, not '$minutes'" ;;
    --nanochat) packing=(--nanochat "$(absolute "${2:?--nanochat needs a checkout}")"); shift ;;
    --pack) pack=$(absolute "${2:?--pack needs a folder}"); shift ;;
    -*) refuse "unknown option '$1'; see the head of the script" ;;
    *) out=$(absolute "$1") ;;
  esac
  shift
done
[ ! -e "$out" ] || refuse "$out exists already: give another folder"
mkdir -p "$out"

if [ -z "$pack" ]; then
  # README's first command fetches missing dependencies and determines the GPUs to compile for.
  scripts/train.sh --backend cuda --num-iterations 20 --eval-every -1 --out "$out/first_run"
  of_cache() { sed -n "s/^$1:[A-Z]*=//p" build/release/CMakeCache.txt; }
  cmake --preset gpu --log-level=WARNING "-DMUO_CUDA_ARCHITECTURES=$(of_cache MUO_CUDA_ARCHITECTURES)" \
    "-DCUDAToolkit_ROOT=$(of_cache CUDAToolkit_ROOT)" >/dev/null
  cmake --build --preset gpu
  scripts/gpu_pack.sh --build build/gpu "${packing[@]}" "$out/pack.tar.gz"
  pack=$out/pack
  mkdir "$pack"
  tar -xf "$out/pack.tar.gz" -C "$pack"
  rm "$out/pack.tar.gz"
fi

calls=(1 2 3)
gpus=$(nvidia-smi -L | wc -l) || refuse "nvidia-smi lists no GPU"
if [ "$gpus" -gt 1 ]; then calls+=(4); fi
export MUO_CHECK_PATIENCE=${MUO_CHECK_PATIENCE:-10}  # multiplies the stages' time limits, which are for an H100
seconds=$((${minutes:-1440} * 60))
end=$((SECONDS + seconds))
code=0
for call in "${calls[@]}"; do
  left=$((end - SECONDS))
  "$pack/scripts/gpu_check.sh" "$call" $((left > 0 ? left : 0)) "$out/call_$call" || code=1
done
folders=("${calls[@]/#/$out/call_}")
scripts/gpu_results.py "${folders[@]}" --results "$out/results" || code=1
tar -C "$out/results" -czf "$out/results.tar.gz" .
echo "
Results are in $out/results.tar.gz: JSON, no names of users, hosts or folders. To add them, unpack it into
tests/bench/results and send a pull request, or attach it to an issue; what the stages printed is in $out/call_*."
exit $code
