#!/usr/bin/env bash
# Tests the tree for aarch64 on an x86-64 machine: in a bare Debian (a chroot made with debootstrap, in build/chroot), a
# clone of HEAD is cross-compiled with Debian's compiler and arm64 libraries. qemu-user then runs the test programs that
# take only seconds there, and a training run of 5 steps on two devices.
#   scripts/try_aarch64.sh SUITE
#     SUITE  bookworm (Debian 12), trixie (13) or later
# Needs root, debootstrap, and a Debian with a working apt. If CCACHE_DIR is set, the compiler uses that cache.
# Prints one line of JSON. Exit codes: 0 all passed, 1 failures (the logs are named), 2 usage or no chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/bare_debian.sh

usage() { echo "try_aarch64.sh: $1" >&2; exit 2; }
case "${1:-}" in
  "" | -*) usage "give SUITE: bookworm or trixie" ;;
esac
[ $# -eq 1 ] || usage "give only one SUITE, not '$*'"
make_chroot "$1" "$1-aarch64"
clone_for root

# Runs lines of bash in the clone and exits if they fail.
step() {
  try "$1" bash -ec "$2"
  [ "$code" -eq 0 ] || exit 1
}

step packages '
  dpkg --add-architecture arm64
  apt-get update
  apt-get install --yes --no-install-recommends cmake ninja-build git g++-aarch64-linux-gnu qemu-user libcli11-dev \
    nlohmann-json3-dev {libtomlplusplus,libdnnl,libfmt,libpcre2,libyaml,zlib1g,libzstd,libcpp-httplib,libsentencepiece,libonig,libutf8proc,libsodium}-dev:arm64 \
    lib{gtest,gmock,benchmark}-dev:arm64 '"${CCACHE_DIR:+ccache}"
step build '
  cmake --preset release -DMUO_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64
  cmake --build --preset release'
result="\"build_seconds\":$seconds"
# The tests of optim and graphs, and nanochat's training runs, take too long; those of trainer, kit and cli have not
# been tried. Death tests and the tests in tests/system start further programs, which qemu-user passes to a kernel that
# cannot run them.
left_out='-Slow*:Simt*:*/simt_*:*/multi_gpu_*:*DeathTest*:*NanochatTraining*:*NanochatStrategy*'
for room in base kernels data contract model golden runtime; do
  step "$room" "qemu-aarch64 build/release/${room}_test --gtest_filter='$left_out'"
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests*\.$/\1/p' "$log.$room.log")
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) tests*, listed.*/\1/p' "$log.$room.log")
  result+=",\"$room\":{\"passed\":$passed,\"skipped\":${skipped:-0},\"seconds\":$seconds}"
done
step train '
  qemu-aarch64 build/release/muograph doctor
  qemu-aarch64 build/release/muograph train --config configs/quick.toml --data README.md docs/*.md --depth 2 \
    --num-iterations 5 --target-batch-size 512 --eval-every 5 --eval-tokens 1024 --sample-every -1 --devices 2'
loss() { sed -n "s|^step $1/5 *loss \([0-9.]*\).*|\1|p" "$log.train.log"; }
result+=",\"train_seconds\":$seconds,\"first_loss\":$(loss 1),\"last_loss\":$(loss 5)"
# shellcheck disable=SC2016  # dpkg-query's
step versions 'aarch64-linux-gnu-g++ --version | head -n 1; qemu-aarch64 --version | head -n 1
  dpkg-query -W -f "\${Version}\n" libdnnl-dev:arm64'
mapfile -t versions <"$log.versions.log"
printf '{"date":"%s","commit":"%s","suite":"%s","compiler":"%s","emulator":"%s","onednn":"%s","cores":%d,"ccache":%s,%s}\n' \
  "$(date +%F)" "$commit" "$1" "${versions[@]}" "$(nproc)" \
  "$([ -n "${CCACHE_DIR:-}" ] && echo true || echo false)" "$result"
