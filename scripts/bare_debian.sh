#!/usr/bin/env bash
# For scripts that try something on a bare Debian, which source this and have a function `usage TEXT` that exits.

# Makes the chroot $2 of suite $1 by debootstrap, with this machine's mirror and apt settings; $3 is the log.
make_chroot() {
  local suite=$1 chroot=$2 log=$3 codename mirror file
  [ "$(id -u)" -eq 0 ] || usage "only root can make a chroot"
  command -v debootstrap >/dev/null || usage "there is no debootstrap: apt-get install debootstrap"
  # This machine's mirror is the one that has its own suite.
  codename=$(sed -n "s/^VERSION_CODENAME=//p" /etc/os-release)
  mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p" | head -n 1)
  [ -n "$mirror" ] || usage "the apt sources of this machine have no mirror with the suite '$codename'"
  mkdir -p "${chroot%/*}"
  rm -rf "$chroot"
  echo "${0##*/}: debootstrap of $suite" >&2
  debootstrap --variant=minbase "$suite" "$chroot" "$mirror" >"$log" 2>&1 || usage "debootstrap failed: $log"
  # What apt needs here it needs there: proxies, credentials, certificates, names.
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d \
              /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts; do
    if [ -e "$file" ]; then
      mkdir -p "$chroot${file%/*}"
      cp -RL "$file" "$chroot${file%/*}/"
    fi
  done
}
