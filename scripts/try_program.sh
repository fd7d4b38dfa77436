# shellcheck shell=bash
# Sourced by scripts that test an installed program: creates `folder`, which is removed at the end, and defines these
# functions.

fail() { echo "${0##*/}: $1" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log

# Runs a command; if it fails, prints its output and exits.
quietly() {
  local code=0
  "$@" >"$log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then tail -n 5 "$log" >&2; fail "$*: exit code $code"; fi
}

# Trains five steps with program $1 and the other arguments, and makes a report, in an empty folder: $folder/run/out.
# The configuration is one of the installed files.
try_program() {
  local program=$1 run=$folder/run
  shift
  rm -rf "$run"
  mkdir "$run"
  (cd "$run" && quietly "$program" train --data "$@" --config quick.toml --num-iterations 5 --out out)
  grep -q '^trained 5 steps' "$log" || fail "$program did not report 5 trained steps"
  (cd "$run" && quietly "$program" report out)
  # The command prints its address and is then terminated by timeout.
  (cd "$run" && timeout 3 "$program" report --follow out --port 0 >"$log" 2>&1) || true
  grep -q '^http://127' "$log" || fail "$program report --follow: $(cat "$log")"
}
