#!/usr/bin/env bash
# Proves and measures muograph on the NVIDIA GPUs of this machine: builds it for them, trains, and runs every
# test, check and benchmark of scripts/gpu_check.sh; where there are several GPUs, also what needs them. About
# an hour. Nothing is sent anywhere: docs/status.md asks for what comes out, and says how to hand it in.
#   scripts/prove_gpu.sh [--minutes N] [--nanochat CHECKOUT] [--pack FOLDER] [OUT]
#     --minutes N           no stage begins later than that after the build
#     --nanochat CHECKOUT   measures nanochat's newest commit there beside it, if PyTorch is here
#     --pack FOLDER         an unpacked archive of scripts/gpu_pack.sh, instead of a build
#     OUT                   build/gpu_proof; it must not be there
# Exit codes: 0 all passed; 1 a stage did not, and OUT has everything all the same; 2 nothing could be tried.
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
      [[ $minutes =~ ^[1-9][0-9]*$ ]] || refuse "--minutes takes a whole number from 1 on, not '$minutes'" ;;
    --nanochat) packing=(--nanochat "$(absolute "${2:?--nanochat needs a checkout}")"); shift ;;
    --pack) pack=$(absolute "${2:?--pack needs a folder}"); shift ;;
    -*) refuse "unknown option '$1'; see the head of the script" ;;
    *) out=$(absolute "$1") ;;
  esac
  shift
done
[ ! -e "$out" ] || refuse "$out is there already: give another folder"
mkdir -p "$out"

if [ -z "$pack" ]; then
  # README's first command fetches what is missing and finds out for which GPUs to compile.
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
export MUO_CHECK_PATIENCE=${MUO_CHECK_PATIENCE:-10}  # times the limits of stages, which are for an H100
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
