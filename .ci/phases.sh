# shellcheck shell=bash
# Sourced by the scripts beside this one: a line at the start of each phase and at the end, with the time so far.
phase() {
  printf '\n=== %s (%d min %02d s so far)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60))
}
at_exit() {
  local code=$?
  if [ "$code" -ne 0 ]; then phase "FAILED, exit code $code"; fi
}
trap at_exit EXIT
