#!/usr/bin/env bash
# Installs what is missing, builds for this CPU and the GPUs of this machine, trains. Without --data: a
# small model on the C and C++ headers of this machine, sized by configs/quick.toml, on GPUs by
# configs/quick_gpu.toml.
#   scripts/train.sh [options of `muograph train`]
# e.g. scripts/train.sh --data my.txt --num-iterations 500
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

# Where GPUs are, the CUDA backend is built for them; or it is said why not: here, and by
# MUO_NO_CUDA in the first line of the run.
architectures='' visible='' toolkit=''
gpus_are_not_used() {
  if [ "$backend" = cuda ]; then echo "train.sh: --backend cuda: $*" >&2; exit 2; fi
  echo "train.sh: training on the CPU: $*" >&2
  export MUO_NO_CUDA=$*
  architectures=''
  rm -f build/release/libmuograph_cuda.so  # of an earlier build: it would be loaded
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
  # Older ones are not the run's, unless the user has chosen himself.
  if [ -n "$visible" ]; then export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$visible}; fi
  if toolkit=$(scripts/fetch_cuda.sh find); then
    scripts/setup.sh
  else
    scripts/setup.sh --cuda
    if scripts/fetch_cuda.sh toolkit 2>"$said"; then
      toolkit=$(scripts/fetch_cuda.sh find)
      scripts/fetch_cuda.sh frontend || echo "train.sh: so attention is not cuDNN's" >&2
      scripts/fetch_cuda.sh cutlass || echo "train.sh: so products are not fused" >&2
    elif toolkit=$(scripts/fetch_cuda.sh find --any); then
      echo "train.sh: $toolkit has no cuDNN, so attention is not cuDNN's: $(cat "$said")" >&2
    else
      gpus_are_not_used "$(cat "$said")"
    fi
  fi
fi

# The core library for this CPU alone takes less to compile than one for each kind.
cpus=x86-64-v4
for feature in avx512f avx512bw avx512cd avx512dq avx512vl; do
  grep -qsw $feature "${MUO_GPU_ROOT:-}/proc/cpuinfo" || cpus=x86-64-v3
done
moved=$(fresh_if_moved release)
fresh=(${moved:+"$moved"}) cuda=(-DMUO_CUDA=AUTO) targets=(muograph)
if [ -n "$architectures" ]; then
  cuda=(-DMUO_CUDA=ON "-DMUO_CUDA_ARCHITECTURES=$architectures" "-DCUDAToolkit_ROOT=$toolkit")
  targets+=(muograph_cuda)
  # CMake keeps to the compiler that it has once found.
  if known=$(grep -s '^CUDAToolkit_NVCC_EXECUTABLE:.*/nvcc$' build/release/CMakeCache.txt) &&
     [ "${known#*=}" != "$toolkit/bin/nvcc" ]; then
    fresh=(--fresh)
  fi
fi
cmake --preset release "${fresh[@]}" --log-level=WARNING "-DMUO_CPUS=$cpus" "${cuda[@]}" >/dev/null
# Sets `weight` to about the seconds that the object in $1, a file's name or ninja's line, takes to compile.
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

# Shows ninja's lines, [1/50] and the rest, as one that says how much is built and how long the rest takes.
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
# GPU sizes would take a CPU for ever: only if the program, too, finds that it can use the GPUs.
if [ -n "$architectures" ] &&
   { [ "$backend" = cuda ] || build/release/muograph doctor --gpu >/dev/null; }; then
  quick=quick_gpu.toml
fi
defaults=(--config "$root/configs/$quick")
# On every machine that can build; the order is the shell's, whatever the language of the user.
export LC_COLLATE=C
text=(--data /usr/include/*.h /usr/include/asm-generic /usr/include/linux
      /usr/include/"$(uname -m)"-linux-gnu/{asm,bits,sys} /usr/include/c++/[0-9]* --data-max-bytes 12000000)
before=
for argument in "$@"; do
  case "$before$argument" in
    --data | --data=*) text=() ;;
    --config | --config=*) defaults=() text=() ;;
    --resume) before=--resume= && continue ;;
    --resume=auto) ;;  # repeats a command that may have been started already
    --resume=*) defaults=() text=() ;;  # a directory brings its options along
  esac
  before=
done
cd "$here"  # the paths of the user are relative to where they are
exec "$root/build/release/muograph" train "${defaults[@]}" "${text[@]}" "$@"
