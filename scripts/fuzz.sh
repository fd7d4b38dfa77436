#!/usr/bin/env bash
# Fuzzes the program's file readers: runs libFuzzer on the targets of tests/fuzz, starting from their corpus.
#   scripts/fuzz.sh [--seconds N] [TARGET...]     N for each target (default 60); default: all targets
# Findings are in build/fuzz/found. Move them to tests/fuzz/corpus/TARGET under a descriptive name (good_... if the file
# should be accepted), where fuzz_test keeps them as regression tests.
# Exit codes: 0 nothing found, 1 findings, 2 usage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/path.sh

seconds=60
if [ "${1:-}" = --seconds ]; then
  [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "fuzz.sh: --seconds needs a number" >&2; exit 2; }
  seconds=$2
  shift 2
fi
mapfile -t all < <(cd tests/fuzz/corpus && printf '%s\n' *)
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then targets=("${all[@]}"); fi
for target in "${targets[@]}"; do
  [ -d "tests/fuzz/corpus/$target" ] || {
    echo "fuzz.sh: no target '$target'; targets are: ${all[*]}" >&2
    exit 2
  }
done

scripts/setup.sh --fuzz
[ -f build/dev/build.ninja ] || cmake --preset dev --log-level=WARNING >/dev/null
cmake --build --preset dev --target muograph_core muograph_sentencepiece muograph_oniguruma

# The readers are compiled with fuzzer instrumentation, so that the fuzzer sees their branches. Everything else comes
# from the library.
mkdir -p build/fuzz/found
readers=(data/shards.cpp src/base/file_bytes.cpp src/trainer/checkpoint/safetensors.cpp
         src/base/strict_json.cpp src/trainer/checkpoint/manifest.cpp src/trainer/options/config_file.cpp
         src/trainer/checkpoint/model_json.cpp src/kit/export/nanochat_files.cpp
         src/kit/report/{html_report,run_history,text_report,train_record}.cpp
         data/documents.cpp data/byte_source.cpp data/text_corpus.cpp data/token_data.cpp data/input_files.cpp
         data/tokenizer/sentencepiece_model.cpp data/tokenizer/normalization_rules.cpp
         data/tokenizer/split_pattern.cpp
         src/kernels/cuda/gemm_algorithms.cpp data/examples/*.cpp)
clang++ -std=c++20 -O1 -g -march=x86-64-v3 -fsanitize=fuzzer,address,undefined \
  -fno-sanitize-recover=all -DFMT_SHARED -Isrc -I. -Itests \
  tests/fuzz/fuzzer.cpp tests/fuzz/targets.cpp tests/support/files.cpp "${readers[@]}" \
  -Lbuild/dev -lmuograph_core -lfmt -lyaml -lz -lzstd -Wl,-rpath,"$PWD/build/dev" -o build/fuzz/fuzzer

# malloc_limit_mb: a Zstandard frame may request a window of 2 GiB, which is allocated but never touched.
found=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  log=build/fuzz/$target.log
  mkdir -p "$corpus"
  if MUO_FUZZ_TARGET=$target build/fuzz/fuzzer -max_total_time="$seconds" -max_len=8192 -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=4096 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$target-" \
    "$corpus" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$target: $runs inputs, nothing found"
  else
    found=1
    echo "$target: FOUND, see $log"
    grep -m 3 -E 'ERROR|what\(\)|runtime error' "$log" || true
  fi
done
exit $found
