#!/usr/bin/env bash
# Proves and measures the CUDA kernels on a machine with a GPU, in one command under 9 minutes, from
# binaries that scripts/gpu_pack.sh made on another machine: neither compiler nor package is needed.
#   scripts/gpu_check.sh ARCHIVE OUT
# Writes OUT/checks.json (parity of kernels, sanitizers, the whole step, a training run beside the same
# one on the CPU), OUT/kernels_bench.json (times), OUT/torch.json (PyTorch on the same GPU, if there),
# OUT/log. Exit 1 if a check failed; all are run, the later ones only while there is time.
set -uo pipefail

if [ $# -ne 2 ] || [ ! -f "$1" ]; then
  echo "usage: gpu_check.sh ARCHIVE OUT (ARCHIVE: what scripts/gpu_pack.sh made)" >&2
  exit 2
fi
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$(mktemp -d)
trap 'rm -rf "$binaries"' EXIT
tar -C "$binaries" -xzf "$1" || exit 2
mkdir -p "$2"
out=$(cd "$2" && pwd)
exec > >(tee "$out/log") 2>&1

# CUDA's libraries come from the Python packages that PyTorch brings, where no toolkit is installed.
packages=$(python3 - <<'PY' 2>/dev/null
import pathlib, site, sys
roots = {pathlib.Path(p) for p in [*site.getsitepackages(), *sys.path] if p}
print(":".join(sorted({str(f.parent) for r in roots for f in r.glob("nvidia/**/lib*.so.*")})))
PY
)
export LD_LIBRARY_PATH="$binaries:$packages${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

results=()
deadline=520 # seconds
# check NAME SECONDS COMMAND...: runs it, keeps its verdict and its output in OUT.
check() {
  local name=$1 limit=$2 begin=$SECONDS code=0
  shift 2
  printf '\n=== %s\n' "$name"
  if [ $((deadline - SECONDS)) -lt "$limit" ]; then limit=$((deadline - SECONDS)); fi
  if [ "$limit" -lt 5 ]; then
    echo "no time left"
    results+=("$name" "no time" 0)
    return
  fi
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || code=$?
  tail -n 25 "$out/$name.txt"
  results+=("$name" "$code" "$((SECONDS - begin))")
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
check parity 120 env MUO_TEST_BACKEND=cuda "$binaries/kernels_test" \
  --gtest_output="json:$out/parity.json"
check contracts 60 "$binaries/contracts_test" --gtest_filter='*cuda_peer:*multi_gpu*' \
  --gtest_output="json:$out/contracts.json"
check step 90 env MUO_TEST_BACKEND=cuda "$binaries/graphs_test" \
  --gtest_filter='DeviceStep.*:NcclStep.*' \
  --gtest_output="json:$out/step.json"
train=("$binaries/muograph" train --data "$binaries/text.txt" --depth 4 --max-seq-len 256
  --device-batch-size 8 --total-batch-size 16384 --num-iterations 200 --eval-every -1
  --sample-every -1 --save-every -1)
bench=(--depth 12 --vocab-size 50304 --max-seq-len 1024 --total-batch-size 65536
  --num-iterations 1000 --backend cuda --devices 1 --steps 20 --json)
check bench_step 60 "$binaries/muograph" bench step "${bench[@]}" --device-batch-size 8
check bench_launch 60 "$binaries/muograph" bench launch "${bench[@]}" --device-batch-size 8
check bench_ranks 60 "$binaries/muograph" bench launch "${bench[@]}" --device-batch-size 4 \
  --ranks-per-device 2
train_cuda=("${train[@]}" --backend cuda --devices 1 --ranks-per-device 2
  --gemm-table "$out/gemm_table.json")
check train_cuda 60 "${train_cuda[@]}" --out "$out/train_cuda"
check train_again 40 "${train_cuda[@]}" --out "$out/train_again"
last=checkpoints/step_00000200/model.safetensors
check same_bits 10 cmp "$out/train_cuda/$last" "$out/train_again/$last"
check train_host 150 "${train[@]}" --backend host --devices 8 --dtype fp32 --out "$out/train_host"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck synccheck initcheck; do
    check "$tool" 60 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "$binaries/cuda_kernels_bench" --small
  done
else
  echo "no compute-sanitizer on this machine: its checks are missing from the results"
  results+=(compute-sanitizer missing 0)
fi
check bench 90 "$binaries/cuda_kernels_bench" --json "$out/kernels_bench.json"
check torch 45 python3 "$scripts/torch_kernels.py" --json "$out/torch.json"

printf '%s\n' "${results[@]}" | python3 "$scripts/gpu_results.py" "$out" "$binaries/commit"
