# shellcheck shell=bash
# Sourced by scripts that try an installed program: `folder`, which is removed at the end, and these functions.

fail() { echo "${0##*/}: $1" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log

# A command that is to succeed, and says what it did only if it does not.
quietly() {
  local code=0
  "$@" >"$log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then tail -n 5 "$log" >&2; fail "$*: exit code $code"; fi
}

# Five steps by program $1 on the other arguments, and a report, in an empty folder: $folder/run/out. The configuration
# is one that comes along.
try_program() {
  local program=$1 run=$folder/run
  shift
  rm -rf "$run"
  mkdir "$run"
  (cd "$run" && quietly "$program" train --data "$@" --config quick.toml --num-iterations 5 --out out)
  grep -q '^trained 5 steps' "$log" || fail "$program did not say that it trained 5 steps"
  (cd "$run" && quietly "$program" report out)
  # Says its address, then ends at the signal of timeout.
  (cd "$run" && timeout 3 "$program" report --follow out --port 0 >"$log" 2>&1) || true
  grep -q '^http://127' "$log" || fail "$program report --follow: $(cat "$log")"
}
