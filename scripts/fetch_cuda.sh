#!/usr/bin/env bash
# Fetches missing dependencies of the CUDA backend from Python packages with pip; every package is pinned and verified
# by its hash. Prints nothing if everything is available.
#   scripts/fetch_cuda.sh find        prints the folder of a CUDA toolkit 13.0 or newer with cuDNN,
#                                     installed or fetched; exit code 1 and no output if there is none
#   scripts/fetch_cuda.sh find --any  the same, with or without cuDNN
#   scripts/fetch_cuda.sh toolkit     nvcc, cuBLAS, cuDNN, NCCL to build/third_party/cuda
#   scripts/fetch_cuda.sh frontend    cuDNN's C++ frontend, headers only, to build/third_party/cudnn_frontend
#   scripts/fetch_cuda.sh cutlass     CUTLASS, headers only, to build/third_party/cutlass
#   scripts/fetch_cuda.sh disassembler   nvdisasm, to build/third_party/nvdisasm
#   scripts/fetch_cuda.sh nccl        an NCCL that allows several ranks on one GPU, to build/third_party/nccl, for
#                                     scripts/gpu_pack.sh
# After an interruption no incomplete file is taken for complete, and the next call continues the download.
# MUO_GPU_ROOT: folder that contains usr, instead of / (for tests).
# Exit codes: 0 available; 3 not available (one line on standard error says why and what to do).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/path.sh"
source "$(dirname "${BASH_SOURCE[0]}")/python_packages.sh"

# Version and hash of one file, for any version of Python. nvcc does not declare its dependency on the nvvm of the same
# version. Both sizes are in MB: of the package, and unpacked.
packages() {
  case "$1" in
    toolkit) cat <<'TABLE' ;;
nvidia-cuda-nvcc     13.0.88   56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03  37 116
nvidia-nvvm          13.0.88   c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0  62 140
nvidia-cuda-crt      13.0.88   2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4   1   1
nvidia-cuda-runtime  13.0.96   7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548   3   7
nvidia-cuda-cccl     13.0.85   e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649   4  40
nvidia-cuda-nvrtc    13.0.88   ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575  91 230
nvidia-nvtx          13.0.85   4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4   1   1
nvidia-cublas        13.1.0.3  ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171 424 598
nvidia-cudnn-cu13    9.19.0.56 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf 367 494
nvidia-nccl-cu13     2.28.9    e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42 197 219
TABLE
    frontend) cat <<'TABLE' ;;
nvidia-cudnn-frontend 1.32.0   c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0   3   4
TABLE
    disassembler) cat <<'TABLE' ;;
nvidia-cuda-nvdisasm 13.5.37 d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca   6   6
TABLE
    nccl) cat <<'TABLE' ;;
nvidia-nccl-cu13 2.30.7 cefa7fdb9710efd0f39c5f1be1d61ff6fc9a996c451265bd7fbdcf9455ed4b50 216 253
TABLE
    cutlass) cat <<'TABLE' ;;
nvidia-cutlass 4.2.0.0 f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6   7  40
TABLE
  esac
}

# Arranges the packages in one folder like an installed toolkit.
lay_out_toolkit() {
  local all=$1 root=$1/nvidia/cu13 library
  for library in cudnn nccl; do
    cp -rl "$all/nvidia/$library/." "$root"
  done
  chmod +x "$root"/bin/* "$root"/nvvm/bin/*  # Python's zipfile does not restore file modes
  mkdir -p "$root/licenses"
  for library in "$all"/*.dist-info; do
    cp -r "$library" "$root/licenses"
  done
  # CMake and the linker need names without versions, and CMake searches lib64.
  for library in "$root"/lib/lib*.so.*; do
    ln -sf "${library##*/}" "${library%.so.*}.so"
  done
  ln -sfn lib "$root/lib64"
}

# Copies $1 from the package, and its licenses, to one folder: $from.
lay_out_part() {
  from=$to.new/part
  mkdir -p "$from"
  cp -r "$to.new/all/$1" "$to.new"/all/*.dist-info/licenses "$from"
}

# Succeeds if one of the folders contains this header.
has_header() {
  local header=$1 folder
  shift
  for folder; do
    if [ -e "$folder/$header" ]; then return; fi
  done
  return 1
}

# A toolkit is more than a compiler: it also needs the headers of cuBLASLt and of cuDNN, which comes in separate
# packages.
is_toolkit() {
  local release includes=("$1/include" "$1/targets/x86_64-linux/include")
  [ -x "$1/bin/nvcc" ] || return 1
  release=$("$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [ "${release:-0}" -ge 13 ] && has_header cublasLt.h "${includes[@]}" &&
    { [ "$also_without_cudnn" = yes ] ||
      has_header cudnn.h "${includes[@]}" "${MUO_GPU_ROOT:-}"/usr/include{,/x86_64-linux-gnu}; }
}

find_toolkit() {
  local nvcc root
  nvcc=$(command -v nvcc || true)
  for root in "${CUDAToolkit_ROOT:-}" "${CUDA_PATH:-}" "${CUDA_HOME:-}" "${nvcc%/bin/nvcc}" \
    "${MUO_GPU_ROOT:-}"/usr/local/cuda "${MUO_GPU_ROOT:-}"/usr/local/cuda-1[3-9]*; do
    if [ -n "$root" ] && is_toolkit "$root"; then echo "$root"; return; fi
  done
  root=$third_party/cuda
  if is_whole toolkit "$root"; then echo "$root"; return; fi
  return 1
}

table=${1:-} also_without_cudnn=no
if [ "${2:-}" = --any ]; then also_without_cudnn=yes; fi
case "$table" in
  find) find_toolkit; exit ;;
  toolkit) to=$third_party/cuda instead="install the CUDA toolkit 13.0" ;;
  frontend) to=$third_party/cudnn_frontend instead="install the headers of cuDNN's frontend" ;;
  cutlass) to=$third_party/cutlass instead="install CUTLASS's headers" ;;
  disassembler) to=$third_party/nvdisasm instead="install CUDA's nvdisasm" ;;
  nccl) to=$third_party/nccl instead="leave out the stages that need it" ;;
  *) echo "fetch_cuda.sh: give find, toolkit, frontend, cutlass, disassembler or nccl" >&2; exit 2 ;;
esac
begin "$table" "$to"
fetch "$table" "$to.new"
case "$table" in
  toolkit)
    lay_out_toolkit "$to.new/all" || fail "the packages of $table are not as expected: rm -r $to.new"
    from=$to.new/all/nvidia/cu13
    ;;
  frontend) lay_out_part include ;;
  cutlass) lay_out_part cutlass_library/source/include ;;
  nccl) lay_out_part nvidia/nccl/lib/libnccl.so.2 ;;
  disassembler)
    lay_out_part nvidia/cu13/bin/nvdisasm
    chmod +x "$from/nvdisasm"  # Python's zipfile does not restore file modes
    ;;
esac
publish "$table" "$from" "$to"
