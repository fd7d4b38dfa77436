#!/usr/bin/env bash
# Builds the programs that scripts/gpu_check.sh runs and packs them into one archive, with that script, all libraries
# except CUDA's, training data, and results precomputed on the CPU: the machine with the GPU needs no checkout,
# compiler, packages or network. Programs find their libraries through $ORIGIN, because LD_LIBRARY_PATH is only for CUDA
# there.
#   scripts/gpu_pack.sh [--nanochat CHECKOUT] [--build DIR] [ARCHIVE]
# --nanochat: includes nanochat's newest commit, for a comparison. It is in no commit of this repository.
# --build: uses this build instead of building the gpu preset. ARCHIVE: default build/gpu_binaries.tar.gz, at most 50
# MiB.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh
nanochat='' build='' archive=build/gpu_binaries.tar.gz
folder=build/gpu_binaries
most_mib=50
programs=(kernels_test contract_test graphs_test model_test golden_test cuda_test cuda_kernels_bench gpu_facts
          muograph)

absolute() { (cd "$caller" && realpath -m "$1"); }
while [ $# -gt 0 ]; do
  case "$1" in
    --nanochat) nanochat=$(absolute "${2:?--nanochat needs a checkout}"); shift 2 ;;
    --build) build=$(absolute "${2:?--build needs a folder}"); shift 2 ;;
    -*) echo "gpu_pack.sh: unknown option '$1'; see the head of the script" >&2; exit 2 ;;
    *) archive=$(absolute "$1"); shift ;;
  esac
done
if [ -n "$nanochat" ] && ! git -C "$nanochat" rev-parse HEAD >/dev/null 2>&1; then
  echo "gpu_pack.sh: $nanochat is not a checkout of nanochat" >&2
  exit 2
fi

if [ -z "$build" ]; then
  build=build/gpu
  scripts/setup.sh
  cmake --preset gpu --log-level=WARNING >/dev/null
  cmake --build --preset gpu --target "${programs[@]}" muograph_cuda
fi
rm -rf "$folder"
avx512=glibc-hwcaps/x86-64-v4
mkdir -p "$folder/$avx512"
for file in "${programs[@]}" {,"$avx512/"}lib{muograph_core,simd_results}.so libmuograph_cuda.so; do
  strip -o "$folder/$file" "$build/$file"
done
# Packs libraries that another system may lack. The C library and CUDA's libraries are taken from that system.
ldd "$build/kernels_test" "$build/muograph" "$build/libmuograph_core.so" |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' |
  grep -vE '/lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|muograph|simd_results)[^/]*\.so' |
  xargs -I {} cp -L {} "$folder/"
astray=$(env -u LD_LIBRARY_PATH ldd "$folder/muograph" | awk '$1 ~ /^lib(muograph|stdc)/ {print $3}' |
  grep -v "^$(realpath "$folder")/" || true)
if [ -n "$astray" ]; then
  echo "gpu_pack.sh: programs of $build use $astray instead of the packed libraries (\$ORIGIN)" >&2
fi

# NCCL's library is the GPU machine's own, except in stages with several ranks on one GPU, which need a newer one.
if scripts/fetch_cuda.sh nccl; then
  mkdir "$folder/nccl"
  IFS=';' read -ra gpus < <(sed -n 's/^MUO_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")
  scripts/trim_gpu_code.py "$third_party/nccl/libnccl.so.2" "$folder/nccl/libnccl.so.2" "${gpus[@]}"
  strip "$folder/nccl/libnccl.so.2"
fi

find /usr/include -maxdepth 1 -name '*.h' | LC_ALL=C sort | xargs cat |
  { head -c 2000000 >"$folder/text.txt" && cat >/dev/null; }
scripts/gpu_shards.py "$folder/shards"
scripts/gpu_prepare.py "$build" "$folder"
if [ -n "$nanochat" ]; then
  mkdir "$folder/nanochat"
  git -C "$nanochat" archive HEAD nanochat LICENSE | tar -x -C "$folder/nanochat"
  git -C "$nanochat" rev-parse HEAD >"$folder/nanochat/commit"
fi
git rev-parse --short=12 HEAD >"$folder/commit"
changed=$(git status --porcelain --untracked-files=no)
if [ -n "$changed" ]; then
  echo "$(cat "$folder/commit") (changed)" >"$folder/commit"
  printf 'gpu_pack.sh: results will not belong to a commit, because files are changed:\n%s\n' "$changed" >&2
fi

tar -C "$folder" --sort=name --owner=0 --group=0 -cf - . | gzip -9 >"$archive.part"
size=$(stat -c %s "$archive.part")
du -ah "$folder" | sort -rh | head -12
if [ "$size" -gt $((most_mib << 20)) ]; then
  echo "gpu_pack.sh: the archive has $((size >> 20)) MiB, the limit is $most_mib" >&2
  exit 3
fi
mv "$archive.part" "$archive"
echo "$archive: $((size >> 20)) MiB, commit $(cat "$folder/commit")"
