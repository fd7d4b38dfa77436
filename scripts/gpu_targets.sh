#!/usr/bin/env bash
# Prints the GPU architectures for which to compile the CUDA backend on this machine, for scripts/train.sh.
#   scripts/gpu_targets.sh
# Prints one line with CMake's architectures of the machine's GPUs ("90a-real;120-real"). If a GPU is too old for
# muograph, a second line lists the UUIDs of the others, as CUDA_VISIBLE_DEVICES for the run.
# Exit codes: 0 printed; 1 no GPU; 2 the GPUs cannot be used (one line on standard error says why and what to do).
# MUO_CUDA_ARCHITECTURES=90a-real overrides the detection. For tests: MUO_GPU_ROOT, the folder that contains dev and
# proc; MUO_SMI_SECONDS, the timeout of nvidia-smi.
set -euo pipefail

oldest_driver=580    # required by CUDA 13.0
oldest_capability=80
timeout=${MUO_SMI_SECONDS:-10}

no_gpu() { exit 1; }
refuse() { echo "$*" >&2; exit 2; }

# Excludes /dev/nvidiactl and similar files, which also exist without a GPU.
shopt -s nullglob
devices=("${MUO_GPU_ROOT:-}"/dev/nvidia[0-9]*)
shopt -u nullglob
devices=("${devices[@]#"${MUO_GPU_ROOT:-}"}")

# Runs nvidia-smi with these arguments and fills `answer`. A process that is stuck in the driver cannot be killed:
# `timeout`, which waits for its child, would hang as well, so the process is abandoned.
answer=
ask() {
  local file pid deadline=$((SECONDS + timeout)) code=0
  file=$(mktemp)
  nvidia-smi "$@" >"$file" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -gt "$deadline" ]; then
      kill -9 "$pid" 2>/dev/null || true
      disown "$pid"
      rm -f "$file"
      refuse "nvidia-smi has not answered in $timeout s, so the NVIDIA driver hangs: see" \
             "\`dmesg | grep -i nvrm\`; a reboot fixes it"
    fi
    sleep 0.02
  done
  wait "$pid" || code=$?
  answer=$(cat "$file")
  rm -f "$file"
  return $code
}

if [ -n "${MUO_CUDA_ARCHITECTURES:-}" ]; then
  echo "$MUO_CUDA_ARCHITECTURES"
  exit 0
fi
if ! command -v nvidia-smi >/dev/null; then
  [ ${#devices[@]} -gt 0 ] || no_gpu
  refuse "${devices[*]} without nvidia-smi: install the tools of the driver (nvidia-utils-* of Ubuntu," \
         "nvidia-smi of Debian), or give the GPU's compute capability:" \
         "MUO_CUDA_ARCHITECTURES=90a-real scripts/train.sh"
fi
if ! ask --query-gpu=compute_cap,driver_version,uuid,name --format=csv,noheader; then
  first=$(grep -m 1 . <<<"$answer" || echo "no output")
  if grep -qi 'no devices were found' <<<"$answer"; then no_gpu; fi
  if [ ${#devices[@]} -eq 0 ]; then
    # There may be a GPU whose driver is not loaded, or none: this is not an error.
    echo "no GPU is used because nvidia-smi fails: $first" >&2
    no_gpu
  fi
  refuse "${devices[*]}: nvidia-smi fails: $first: reinstall the NVIDIA driver, $oldest_driver or newer"
fi
if ! grep -q . <<<"$answer"; then no_gpu; fi

architectures=() kept=() left_out=() driver=
while IFS=, read -r capability version uuid name; do
  driver=${version# } uuid=${uuid# } name=${name# }
  if [[ ! $capability =~ ^[0-9]+\.[0-9]$ ]]; then
    refuse "nvidia-smi does not report the compute capability of ${name:-a GPU} (it printed" \
           "'$capability'): give it: MUO_CUDA_ARCHITECTURES=90a-real scripts/train.sh"
  fi
  if [ "${capability/./}" -lt $oldest_capability ]; then
    left_out+=("$name (compute capability $capability)")
    continue
  fi
  kept+=("$uuid")
  case "$capability" in
    # Architecture-specific instructions need the "a" variant, which runs only on that architecture.
    9.0 | 10.0 | 10.3) architectures+=("${capability/./}a-real") ;;
    *) architectures+=("${capability/./}-real") ;;
  esac
done <<<"$answer"
names=$(printf '%s, ' "${left_out[@]}")
if [ ${#kept[@]} -eq 0 ]; then
  refuse "${names%, }: muograph needs compute capability 8.0 (A100) or newer: train on the CPU with" \
         "--backend host"
fi

# With NVIDIA's compatibility package, an older driver supports newer CUDA versions; the header of nvidia-smi's output
# then shows the newer version.
if [[ ! ${driver%%.*} =~ ^[0-9]+$ ]] || [ "${driver%%.*}" -lt $oldest_driver ]; then
  ask || true
  cuda=$(sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' <<<"$answer" | head -n 1)
  if [ "${cuda:-0}" -lt 13 ]; then
    refuse "the NVIDIA driver $driver is too old: CUDA 13.0 needs $oldest_driver or newer: update the" \
           "driver (Ubuntu: \`apt-get install nvidia-driver-$oldest_driver-server\`) and reboot"
  fi
fi

(IFS=$'\n'; sort -uV <<<"${architectures[*]}") | paste -sd ';'
if [ ${#left_out[@]} -gt 0 ]; then
  echo "not used, because muograph needs compute capability 8.0 or newer: ${names%, }" >&2
  (IFS=,; echo "${kept[*]}")
fi
