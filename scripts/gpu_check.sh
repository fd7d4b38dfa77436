#!/usr/bin/env bash
# Proves and measures muograph on a machine with a GPU, from what scripts/gpu_pack.sh made elsewhere:
#   scripts/gpu_check.sh 1|2|3 SECONDS ARCHIVE OUT [STAGE...]        scripts/gpu_check.py says more
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_check.py" "$@"
