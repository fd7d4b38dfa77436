#!/usr/bin/env bash
# Tests that no CPU executes instructions that it may lack: AVX-512 may occur only in the library for CPUs that have it,
# and AVX-512 BF16, which some of those CPUs lack, only in kernels that check for it first.
#   tests/system/instructions_test.sh BUILD
set -euo pipefail
build=$1
avx512=$build/glibc-hwcaps/x86-64-v4/libmuograph_core.so

# Prints the instructions of a file that match a pattern, each after the name of its function.
instructions() {
  objdump --disassemble --demangle --no-show-raw-insn "$1" |
    awk -v pattern="$2" '/^[0-9a-f]+ </ { name = $0; sub(/^[^<]*/, "", name) }
                         $0 ~ pattern && !/^[0-9a-f]+ </ { print name ": " $0 }'
}
fail() { printf 'instructions_test.sh: %s\n' "$@" >&2; exit 1; }

for file in "$build/libmuograph_core.so" "$build/muograph"; do
  found=$(instructions "$file" '%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])')
  [ -z "$found" ] || fail "$file has AVX-512:" "${found:0:1000}"
done
[ -n "$(instructions "$avx512" '%zmm')" ] || fail "$avx512 has no AVX-512"
bf16=$(instructions "$avx512" 'vdpbf16ps|vcvtne2?ps2bf16')
[ -n "$bf16" ] || fail "$avx512 has no AVX-512 BF16"
elsewhere=$(grep -vF 'PairedOperand' <<<"$bf16" || true)
[ -z "$elsewhere" ] || fail "$avx512 has AVX-512 BF16 in functions of other operands:" "${elsewhere:0:1000}"
