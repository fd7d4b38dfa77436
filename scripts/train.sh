#!/usr/bin/env bash
# Installs missing dependencies, builds for the CPU and the GPUs of this machine, and trains. Without --data it trains a
# small model on the C and C++ headers of this machine, with configs/quick.toml, or configs/quick_gpu.toml on GPUs.
#   scripts/train.sh [options of `muograph train`]
# e.g. scripts/train.sh --data my.txt --time-budget 10m
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
source scripts/path.sh

backend=auto before=
for argument in "$@"; do
  case "$before$argument" in
    --backend) before=--backend= && continue ;;
    --backend=*) backend=${argument#--backend=} ;;
  esac
  before=
done

# If there are GPUs, the CUDA backend is built for them. Otherwise the reason is printed here and, through MUO_NO_CUDA,
# in the first line of the run.
architectures='' visible='' toolkit=''
gpus_are_not_used() {
  if [ "$backend" = cuda ]; then echo "train.sh: --backend cuda: $*" >&2; exit 2; fi
  echo "train.sh: training on the CPU: $*" >&2
  export MUO_NO_CUDA=$*
  architectures=''
  rm -f build/release/libmuograph_cuda.so  # a library of an earlier build would be loaded
}

if [ "$backend" != host ]; then
  said=$(mktemp)
  trap 'rm -f "$said"' EXIT
  code=0
  answer=$(scripts/gpu_targets.sh 2>"$said") || code=$?
  { read -r architectures && read -r visible; } <<<"$answer" || true
  if [ $code -eq 2 ]; then
    gpus_are_not_used "$(cat "$said")"
  elif [ $code -ne 0 ] && [ "$backend" = cuda ]; then
    gpus_are_not_used "there is no GPU here (no /dev/nvidia*, and nvidia-smi lists none);" \
      "in a container: start it with --gpus all"
  else
    cat "$said" >&2
  fi
fi

if [ -z "$architectures" ]; then
  scripts/setup.sh
else
  # Hides GPUs that are too old from the run, unless the user has set CUDA_VISIBLE_DEVICES.
  if [ -n "$visible" ]; then export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$visible}; fi
  if toolkit=$(scripts/fetch_cuda.sh find); then
    scripts/setup.sh
  else
    scripts/setup.sh --cuda
    if scripts/fetch_cuda.sh toolkit 2>"$said"; then
      toolkit=$(scripts/fetch_cuda.sh find)
      scripts/fetch_cuda.sh frontend || echo "train.sh: attention therefore does not use cuDNN" >&2
      scripts/fetch_cuda.sh cutlass || echo "train.sh: matrix products are therefore not fused" >&2
    elif toolkit=$(scripts/fetch_cuda.sh find --any); then
      echo "train.sh: $toolkit has no cuDNN, so attention does not use it: $(cat "$said")" >&2
    else
      gpus_are_not_used "$(cat "$said")"
    fi
  fi
fi

# Building the core library only for this CPU takes less time than building one for each kind of CPU.
cpus=x86-64-v4
for feature in avx512f avx512bw avx512cd avx512dq avx512vl; do
  grep -qsw $feature "${MUO_GPU_ROOT:-}/proc/cpuinfo" || cpus=x86-64-v3
done
moved=$(fresh_if_moved release)
fresh=(${moved:+"$moved"}) cuda=(-DMUO_CUDA=AUTO) targets=(muograph)
if [ -n "$architectures" ]; then
  cuda=(-DMUO_CUDA=ON "-DMUO_CUDA_ARCHITECTURES=$architectures" "-DCUDAToolkit_ROOT=$toolkit")
  targets+=(muograph_cuda)
  # CMake keeps using the compiler that it found first.
  if known=$(grep -s '^CUDAToolkit_NVCC_EXECUTABLE:.*/nvcc$' build/release/CMakeCache.txt) &&
     [ "${known#*=}" != "$toolkit/bin/nvcc" ]; then
    fresh=(--fresh)
  fi
fi
cmake --preset release "${fresh[@]}" --log-level=WARNING "-DMUO_CPUS=$cpus" "${cuda[@]}" >/dev/null
# Sets `weight` to the approximate number of seconds it takes to compile the object in $1, a file name or a line of
# ninja's output.
weigh() {
  case $1 in
    *.cu.o*) weight=60 ;;
    */united/*) weight=8 ;;
    *.o) weight=1 ;;
    *) weight=0 ;;
  esac
}
all=0
while read -r _ object; do
  object=${object%:}
  if [ -e "build/release/$object" ] || { [ -z "$architectures" ] && [[ $object = */muograph_@(cuda|fused).dir/* ]]; }; then
    continue
  fi
  weigh "$object"
  all=$((all + weight))
done < <(grep -os '^build CMakeFiles/muograph[^ :]*[.]o:' build/release/build.ninja)

# Condenses ninja's lines, such as [1/50], into one line with the progress and the estimated time left.
show_progress() {
  local line terminal='' done=0 shown=0 passed left end=$'\n' begin=$SECONDS
  if [ -t 1 ]; then terminal=$'\r' end=$'\e[K'; fi
  while IFS= read -r line; do
    if ! [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      if [ "$line" != "ninja: no work to do." ]; then printf '%s\n' "$line"; fi
      continue
    fi
    weigh "$line"
    done=$((done + weight)) passed=$((SECONDS - begin))
    if [ $passed -lt 5 ] || { [ -z "$terminal" ] && [ $shown -gt 0 ] && [ $passed -lt $((shown + 15)) ]; }; then
      continue
    fi
    shown=$passed left=''
    if [ $done -le $all ] && [ $((done * 20)) -gt $all ]; then
      left=$((passed * (all - done) / done))
      if [ $left -lt 55 ]; then left="$((left / 10 * 10 + 10)) s"; else left="$(((left + 30) / 60)) min"; fi
    fi
    printf '%s%d of %d built%s%s' "$terminal" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${left:+, about $left left}" "$end"
  done
  if [ -n "$terminal" ] && [ $shown -gt 0 ]; then printf '\r\e[K'; fi
}
cmake --build --preset release --target "${targets[@]}" | show_progress
rm -f "${said:-}"

quick=quick.toml
# The GPU configuration would take forever on a CPU: use it only if the program also finds usable GPUs.
if [ -n "$architectures" ] &&
   { [ "$backend" = cuda ] || build/release/muograph doctor --gpu >/dev/null; }; then
  quick=quick_gpu.toml
fi
defaults=(--config "$root/configs/$quick")
# Text that exists on every machine that can build, sorted in the C locale, whatever the user's language.
export LC_COLLATE=C
text=(--data /usr/include/*.h /usr/include/asm-generic /usr/include/linux
      /usr/include/"$(uname -m)"-linux-gnu/{asm,bits,sys} /usr/include/c++/[0-9]* --data-max-bytes 12000000)
before=
for argument in "$@"; do
  case "$before$argument" in
    --data | --data=*) text=() ;;
    --config | --config=*) defaults=() text=() ;;
    --resume) before=--resume= && continue ;;
    --resume=auto) ;;  # an earlier call of this command may or may not have started the run
    --resume=*) defaults=() text=() ;;  # the run directory has its own options
  esac
  before=
done
cd "$here"  # the user's paths are relative to this folder
exec "$root/build/release/muograph" train "${defaults[@]}" "${text[@]}" "$@"
