# shellcheck shell=bash disable=SC2154  # variables of the sourcing script
# Sourced by scripts/fetch_*.sh: fetches packages from Python's index, each pinned, verified by its hash and fetched
# once. The sourcing script has `third_party` from path.sh, and defines
#   packages TABLE    prints lines of name, version, sha256 of the one file, MB of the package and unpacked
#   $instead          what to do if they cannot be fetched
#   $any_machine      yes: the packages are for every kind of processor
# After an interruption no incomplete file is taken for complete, and the next call continues the download.

PATH=$third_party/debian/bin/python:$PATH  # includes the pip that unpack_packages.sh fetched

fail() { echo "${0##*/}: $*" >&2; exit 3; }

# Prints the line of pip's or Python's output that has the cause: pip reports a broken connection as a missing version.
reason() {
  local cause
  cause=$(grep -m 1 -oE 'No space left.*|connection broken by .*' <<<"$1") ||
    cause=$(grep -m 1 ERROR <<<"$1") || cause=$(grep . <<<"$1" | tail -n 1)
  echo "$cause"
}

# Downloads the packages of table $1 and unpacks them to $2/all. A stamp marks packages that an earlier call unpacked
# completely; these are skipped.
fetch() {
  local table=$1 to=$2 name version sha256 size unpacked needed=0 largest=0 free output
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 has no pip, which fetches $table: apt-get install python3-pip"
  mkdir -p "$to/all" "$to/done" "$to/tmp" 2>/dev/null || fail "cannot write to $to"
  while read -r name version sha256 size unpacked; do
    [ -e "$to/done/$sha256" ] && continue
    needed=$((needed + unpacked))
    largest=$((size > largest ? size : largest))
  done < <(packages "$table")
  needed=$((needed + largest))
  free=$(df --output=avail --block-size=1000000 "$to" | tail -n 1)
  if [ "$free" -lt "$needed" ]; then
    fail "$third_party: $table needs $needed MB of disk, but ${free// /} are free: make room there"
  fi
  while read -r name version sha256 size unpacked; do
    [ -e "$to/done/$sha256" ] && continue
    if [ "$table" = toolkit ]; then echo "fetching $name $version, $size MB"; fi
    rm -rf "$to/tmp/"*
    # Keeps pip's temporary files on the same disk, and no second copy in its cache.
    if ! output=$(cd "$to/tmp" && echo "$name==$version --hash=sha256:$sha256" >wanted &&
        TMPDIR="$to/tmp" python3 -m pip download --disable-pip-version-check --no-input --quiet \
          --no-cache-dir --retries 1 --timeout 20 --no-deps --only-binary=:all: \
          --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64 \
          --platform manylinux_2_27_x86_64 --platform manylinux_2_18_x86_64 \
          --platform manylinux2014_x86_64 --require-hashes --requirement wanted 2>&1 </dev/null &&
        python3 -m zipfile -e ./*.whl "$to/all" 2>&1); then
      fail "pip could not fetch $name $version: $(reason "$output"): repeat the command, which continues" \
           "from here, once network and disk work, or $instead"
    fi
    : >"$to/done/$sha256" 2>/dev/null || fail "cannot write to $to"
  done < <(packages "$table")
}

# Succeeds if folder $2 contains the current table $1.
is_whole() { [ "$(cat "$2/packages" 2>/dev/null)" = "$(packages "$1")" ]; }

# Exits the script if table $1 is in $2. Of two concurrent calls, the second finds what the first has fetched.
begin() {
  local table=$1 to=$2 lock=$third_party/.$1.lock
  if is_whole "$table" "$to"; then exit 0; fi
  [ "${any_machine:-no}" = yes ] || [ "$(uname -m)" = x86_64 ] || fail "there is no $table for $(uname -m) here: $instead"
  mkdir -p "$third_party" 2>/dev/null || fail "cannot write to $third_party"
  (: >"$lock") 2>/dev/null || fail "cannot write to $third_party"
  exec 9>"$lock"
  flock 9
  if is_whole "$table" "$to"; then exit 0; fi
}

# Moves folder $2, a part of what fetch() left in $3.new, to $3.
publish() {
  packages "$1" >"$2/packages"
  rm -rf "$3" "$3.new/done"
  mv "$2" "$3"
  rm -rf "$3.new"
}
