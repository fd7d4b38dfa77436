#!/usr/bin/env bash
# Tests and measures muograph on a machine with a GPU, in the folder into which the archive of scripts/gpu_pack.sh
# was unpacked:
#   scripts/gpu_check.sh CALL SECONDS OUT [STAGE...]                documented in scripts/gpu_check.py
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_check.py" "$@"
