#!/usr/bin/env bash
# Builds what scripts/gpu_check.sh runs and puts it into one archive, with every library but CUDA's, so
# that it runs on a machine with a GPU and neither compiler nor package.
#   scripts/gpu_pack.sh [ARCHIVE]        default: build/gpu_binaries.tar.gz
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
archive=${1:-build/gpu_binaries.tar.gz}
folder=build/gpu_binaries

scripts/setup.sh
cmake --preset gpu --log-level=WARNING >/dev/null
cmake --build --preset gpu --target kernels_test contracts_test graphs_test cuda_kernels_bench muograph muograph_cuda
rm -rf "$folder"
mkdir -p "$folder"
for file in kernels_test contracts_test graphs_test cuda_kernels_bench muograph libmuograph_core.so libmuograph_cuda.so; do
  strip -o "$folder/$file" "build/gpu/$file"
done
# What the linker finds here and another system may lack. The C library and CUDA stay that system's.
ldd "$folder/kernels_test" "$folder/muograph" "$folder/libmuograph_core.so" |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' |
  grep -vE '/lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|muograph)[^/]*\.so' |
  xargs -I {} cp -L {} "$folder/"
find /usr/include -maxdepth 1 -name '*.h' | LC_ALL=C sort | xargs cat |
  { head -c 2000000 >"$folder/text.txt" && cat >/dev/null; }
git describe --always --dirty --abbrev=12 >"$folder/commit"
tar -C "$folder" -czf "$archive" .
echo "$archive: $(du -h "$archive" | cut -f 1), of $(du -sh "$folder" | cut -f 1)"
