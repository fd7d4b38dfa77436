#!/usr/bin/env bash
# Sourced by scripts that test something on a bare Debian, which must define a function `usage TEXT` that exits.
# shellcheck disable=SC2034  # variables that its functions set for the caller
# All files are in build/chroot. If CCACHE_DIR is set, compilers in the chroot use that cache.

# Creates a chroot of suite $1 with debootstrap, using this machine's mirror and apt settings. Sets `chroot` and `log`,
# the prefix of the names of log files.
#   make_chroot SUITE [NAME]     NAME: the name of its folder, by default SUITE
make_chroot() {
  local suite=$1 codename mirror file
  log=$PWD/build/chroot/${2:-$suite}
  chroot=$log
  [ "$(id -u)" -eq 0 ] || usage "only root can make a chroot"
  command -v debootstrap >/dev/null || usage "there is no debootstrap: apt-get install debootstrap"
  # Use the mirror that provides this machine's own suite.
  codename=$(sed -n "s/^VERSION_CODENAME=//p" /etc/os-release)
  mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p" | head -n 1)
  [ -n "$mirror" ] || usage "the apt sources of this machine have no mirror with the suite '$codename'"
  mkdir -p "${chroot%/*}"
  rm -rf "$chroot"
  echo "${0##*/}: debootstrap of $suite" >&2
  debootstrap --variant=minbase "$suite" "$chroot" "$mirror" >"$log.debootstrap.log" 2>&1 ||
    usage "debootstrap failed: $log.debootstrap.log"
  # Copy what apt needs: proxies, credentials, certificates and name resolution.
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d \
              /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts; do
    if [ -e "$file" ]; then
      mkdir -p "$chroot${file%/*}"
      cp -RL "$file" "$chroot${file%/*}/"
    fi
  done
  # Installing ca-certificates in the chroot replaces that copy; pip keeps using this machine's certificates.
  if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$chroot/etc/ssl/certificates-of-the-host.crt"
  fi
  if [ -n "${CCACHE_DIR:-}" ]; then mkdir -p "$CCACHE_DIR" "$chroot/ccache"; fi
}

# Clones HEAD into ~/muograph of a user of the chroot, and creates the user unless it is root. Sets `user`, `home`,
# `clone` (the path from outside the chroot) and `commit`.
clone_for() {
  user=$1
  if [ "$user" != root ]; then chroot "$chroot" useradd --create-home --shell /bin/bash "$user"; fi
  home=$(chroot "$chroot" getent passwd "$user" | cut -d : -f 6)
  clone=$chroot$home/muograph
  git clone --quiet "$PWD" "$clone"
  commit=$(git -C "$clone" rev-parse --short=12 HEAD)
  chroot "$chroot" chown -R "$user:" "$home"
  if [ -d "$chroot/ccache" ]; then chown -R "$(stat -c %u:%g "$clone")" "$CCACHE_DIR"; fi
}

# Runs a command as a user of the chroot, in the clone, with its own /proc and process namespace, which end with it.
#   inside USER COMMAND [ARGUMENT]...
inside() {
  local as=$1 settings=() name
  shift
  for name in http_proxy https_proxy no_proxy; do settings+=("$name=${!name:-}"); done
  if [ -e "$chroot/etc/ssl/certificates-of-the-host.crt" ]; then
    settings+=(PIP_CERT=/etc/ssl/certificates-of-the-host.crt)
  fi
  if [ -d "$chroot/ccache" ]; then
    settings+=(CCACHE_DIR=/ccache "CCACHE_COMPILERCHECK=${CCACHE_COMPILERCHECK:-content}")
  fi
  # shellcheck disable=SC2016  # the inner shells' variables
  unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc"
    if [ -d "$1/ccache" ]; then mount --bind "$CCACHE_DIR" "$1/ccache"; fi
    exec chroot --userspec="$2" "$1" "${@:3}"' bash "$chroot" "$as" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    HOME="$home" LANG=C.UTF-8 CI=false DEBIAN_FRONTEND=noninteractive "${settings[@]}" \
    bash -c 'cd ~/muograph && exec "$@"' bash "$@"
}

# Runs a command like `inside`, as `user`, with output to $log.NAME.log. Sets `code` and `seconds`, and reports
# failures.
#   try NAME COMMAND [ARGUMENT]...
try() {
  local name=$1 begin=$SECONDS
  shift
  echo "${0##*/}: $name; log: $log.$name.log" >&2
  code=0
  inside "$user" "$@" >"$log.$name.log" 2>&1 || code=$?
  seconds=$((SECONDS - begin))
  if [ "$code" -ne 0 ]; then
    echo "${0##*/}: exit code $code: $log.$name.log ends with" >&2
    tail -n 5 "$log.$name.log" >&2
  fi
}
