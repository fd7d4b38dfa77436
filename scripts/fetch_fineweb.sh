#!/usr/bin/env bash
# Downloads FineWeb as GPT-2 tokens, which K. Jordan published on Hugging Face for modded-nanogpt: one validation
# shard and N training shards, of 100 million tokens and 200 MB each. Prints nothing for existing shards.
#   scripts/fetch_fineweb.sh [--shards N] [--dir DIR] [--from URL]
# --shards  default 8: 800 million tokens; 103 are all of fineweb10B-gpt2; 104 to 1030 use fineweb100B-gpt2
# --dir     output folder, default fineweb10B or fineweb100B in the current folder
# --from    URL of a folder with the same files, and optionally SHA256SUMS in the format of sha256sum
# A shard gets its name only after its size matches its header and its SHA-256 that of Hugging Face or SHA256SUMS.
# After an interruption no incomplete file is taken for complete, and the next call continues the download.
# Exit codes: 0 all shards exist; 2 wrong option; 3 a shard is missing (one line on standard error says why and what to
# do).
set -euo pipefail

# Bytes of the header: 256 int32, of which the first three are magic, version and number of tokens.
readonly kHead=1024
readonly kMagic=20240520 kVersion=1
readonly kShardsOf10B=103 kShardsOf100B=1030
readonly kAttempts=4           # attempts per shard

fail() { echo "fetch_fineweb.sh: $*" >&2; exit 3; }
misused() { echo "fetch_fineweb.sh: $*" >&2; exit 2; }

shards=8 dir='' from=''
while [ $# -gt 0 ]; do
  case "$1" in
    --shards | --dir | --from)
      [ -n "${2:-}" ] || misused "$1 needs a value"
      case "$1" in --shards) shards=$2 ;; --dir) dir=$2 ;; --from) from=${2%/} ;; esac
      shift 2 ;;
    *) misused "unknown option '$1'; options are --shards N, --dir DIR and --from URL" ;;
  esac
done
if ! [[ $shards =~ ^[0-9]{1,4}$ ]] || [ "$((10#$shards))" -gt $kShardsOf100B ]; then
  misused "--shards $shards: give 0 (only the validation shard) to $kShardsOf100B"
fi
shards=$((10#$shards))
size=10B
if [ "$shards" -gt $kShardsOf10B ]; then size=100B; fi
from=${from:-https://huggingface.co/datasets/kjj0/fineweb$size-gpt2/resolve/main}
dir=${dir:-fineweb$size}
dir=${dir%/}
again="call again to continue from there"

if command -v curl >/dev/null; then client=curl
elif command -v wget >/dev/null; then client=wget
else fail "neither curl nor wget is installed: apt-get install curl"
fi

# Prints the response headers, including those of redirections. Exit code 1: an HTTP error.
head_of() {
  local code=0
  case $client in
    curl)
      curl --silent --show-error --location --fail --head --connect-timeout 20 --max-time 60 "$1" 2>"$said" || code=$?
      [ $code -ne 22 ] || return 1 ;;
    wget)
      wget --spider --server-response --tries=1 --timeout=30 "$1" >"$said" 2>&1 || code=$?
      cat "$said"
      [ $code -ne 8 ] || return 1 ;;
  esac
  [ $code -eq 0 ] || return 2
}

# Continues the download of $1 to file $2. Returns 0, or 1 with broken, restart, disk, missing or other in `why`.
download() {
  local url=$1 part=$2 code=0 quiet=()
  case $client in
    curl)
      if [ -t 2 ]; then quiet=(--progress-bar); else quiet=(--silent); fi
      curl "${quiet[@]}" --location --fail --continue-at - --connect-timeout 20 --speed-limit 1000 --speed-time 30 \
        --output "$part" --write-out '%{errormsg}\n' "$url" >"$said" || code=$?
      case $code in
        0) return ;;
        23) why=disk ;;
        22) why=missing ;;
        33) why=restart ;;                 # the server does not support ranges
        18 | 28 | 52 | 55 | 56 | 92) why=broken ;;
        *) why=other ;;
      esac ;;
    wget)
      if [ -t 2 ]; then quiet=(--quiet --show-progress); else quiet=(--no-verbose); fi
      wget "${quiet[@]}" --continue --tries=1 --timeout=30 --output-document="$part" "$url" 2>"$said" || code=$?
      case $code in
        0) return ;;
        3) why=disk ;;
        8) why=missing ;;
        4) why=broken ;;
        *) why=other ;;
      esac ;;
  esac
  return 1
}

bytes_of() { stat -c %s "$1" 2>/dev/null || echo 0; }

# Succeeds if $1 is a complete shard; sets `tokens`, or the reason `wrong`.
check_head() {
  local magic version
  tokens=0
  read -r magic version tokens < <(head -c 12 "$1" 2>/dev/null | od -An -td4 -v) || true
  if [ "${magic:-0}" != $kMagic ] || [ "${version:-0}" != $kVersion ]; then
    wrong="not a token shard: it begins with ${magic:-nothing} ${version:-}, not $kMagic $kVersion"
  elif [ "$(bytes_of "$1")" -ne $((kHead + 2 * tokens)) ]; then
    wrong="$(bytes_of "$1") bytes, but its header says $((kHead + 2 * tokens))"
  else return 0
  fi
  return 1
}

# Sets `sha256` (empty if unknown), its source `told_by`, and `total` (0 if unknown) for shard $1.
look_up() {
  local name=$1 head code=0
  sha256='' told_by='' total=0
  head=$(head_of "$from/$name") || code=$?
  [ $code -ne 2 ] || fail "$from/$name: $(reason): $again, or give another --from"
  head=$(tr -d '\r' <<<"$head")
  total=$(sed -n 's/^ *x-linked-size: *\([0-9]*\) *$/\1/Ip' <<<"$head" | tail -n 1)
  if [ $code -eq 0 ]; then  # otherwise it is the length of an error page
    total=${total:-$(sed -n 's/^ *content-length: *\([0-9]*\) *$/\1/Ip' <<<"$head" | tail -n 1)}
  fi
  total=${total:-0}
  sha256=$(sed -n 's/^ *x-linked-etag: *"\{0,1\}\([0-9a-f]\{64\}\)"\{0,1\} *$/\1/Ip' <<<"$head" | tail -n 1)
  if [ -n "$sha256" ]; then told_by="server"; return; fi
  fetch_sums
  sha256=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\$/\1/p" "$sums" | tail -n 1)
  if [ -n "$sha256" ]; then told_by="SHA256SUMS"; fi
}

# Downloads SHA256SUMS of --from, once. The file is empty if there is none.
fetch_sums() {
  [ ! -e "$sums" ] || return 0
  local code=0
  case $client in
    curl) curl --silent --show-error --location --fail --max-time 60 "$from/SHA256SUMS" >"$sums" 2>"$said" || code=$? ;;
    wget) wget --quiet --tries=1 --timeout=30 --output-document=- "$from/SHA256SUMS" >"$sums" 2>"$said" || code=$? ;;
  esac
  case $code in
    0) ;;
    22 | 8) : >"$sums" ;;
    *) fail "$from/SHA256SUMS: $(reason): $again, or give another --from" ;;
  esac
}

# Prints the last line of output of curl or wget.
reason() {
  local line
  line=$(grep . "$said" 2>/dev/null | tail -n 1 | sed 's/^curl: //') || true
  echo "${line:-the connection failed}"
}

si() { numfmt --to=si --suffix=B "$1"; }

check_room() {
  local part=$1 name=$2 free
  free=$(df --output=avail --block-size=1 "$dir" | tail -n 1)
  if [ "$total" -gt 0 ] && [ "$free" -lt $((total - $(bytes_of "$part"))) ]; then
    fail "$dir: $name needs $(si $((total - $(bytes_of "$part")))), but $(si "$free") are free:" \
         "make room or give another --dir; $again"
  fi
}

fetch_shard() {
  local name=$1 part=$dir/.$1.part attempt was
  if [ -e "$dir/$name" ]; then
    check_head "$dir/$name" || fail "$dir/$name: $wrong: remove it and call again"
    return
  fi
  look_up "$name"
  for ((attempt = 1; ; ++attempt)); do
    if check_head "$part"; then break; fi  # complete, but its SHA-256 has not been compared
    check_room "$part" "$name"
    if download "$from/$name" "$part"; then break; fi
    was=$(bytes_of "$part")
    case $why in
      disk) fail "$part: cannot write after $was bytes ($(reason)): is the disk full? make room or give" \
                 "another --dir; $again" ;;
      missing) [ -s "$part" ] || rm -f "$part"
               if [[ $(reason) == *404* ]]; then
                 fail "$from/$name: $(reason): check --from, and whether it has $shards shards"
               fi
               fail "$from/$name: $(reason): $again, or give another --from" ;;
      restart) rm -f "$part"; continue ;;
      other) fail "$from/$name: $(reason): $again, or give another --from" ;;
      broken) if [ "$attempt" -ge $kAttempts ]; then
             fail "$from/$name: the connection broke after $was bytes${total:+ of $total}: $again"
           fi ;;
    esac
  done
  if [ -n "$sha256" ]; then
    was=$(sha256sum "$part")
    was=${was%% *}
    if [ "$was" != "$sha256" ]; then
      rm -f "$part"
      fail "$from/$name: its SHA-256 is $was, expected $sha256 ($told_by): removed; call again, or give another --from"
    fi
  fi
  if ! check_head "$part"; then
    rm -f "$part"
    fail "$from/$name: $wrong: removed; call again, or give another --from"
  fi
  sync "$part"
  mv "$part" "$dir/$name"
  echo "$dir/$name: $tokens tokens, $(if [ -n "$sha256" ]; then echo "SHA-256 verified ($told_by)"; else
    echo "size as in its header; SHA-256 unknown"; fi)"
}

mkdir -p "$dir" 2>/dev/null || fail "cannot write to $dir: give another --dir"
(: >"$dir/.lock") 2>/dev/null || fail "cannot write to $dir: give another --dir"
exec 9>"$dir/.lock"
flock --nonblock 9 || fail "$dir: another call is writing to it: wait for it, or give another --dir"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
said=$temporary/said sums=$temporary/sums

fetch_shard fineweb_val_000000.bin
for ((shard = 1; shard <= shards; ++shard)); do
  fetch_shard "$(printf 'fineweb_train_%06d.bin' $shard)"
done
