#!/usr/bin/env bash
# Proves and measures muograph on a machine with a GPU, in the folder into which the archive of
# scripts/gpu_pack.sh was unpacked:
#   scripts/gpu_check.sh CALL SECONDS OUT [STAGE...]                scripts/gpu_check.py says more
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_check.py" "$@"
