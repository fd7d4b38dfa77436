# shellcheck shell=bash
# Sourced by the scripts in this folder: prints a line with the elapsed time at the start of each phase and at the end.
phase() {
  printf '\n=== %s (%d min %02d s so far)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60))
}
at_exit() {
  local code=$?
  if [ "$code" -ne 0 ]; then phase "FAILED, exit code $code"; fi
}
trap at_exit EXIT
