#!/usr/bin/env bash
# Predicts the step times of nanochat's d12, d20 and d24 on one GPU, with and without deterministic gradients: a
# line of
# JSON each, as in docs/performance.md and tests/bench/results.
#   scripts/predict_steps.sh [MUOGRAPH [GPU]] >FILE.jsonl      build/release/muograph, h100
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for model in "12 32" "20 16" "24 16"; do
  read -r depth rows <<<"$model"
  for deterministic in on off; do
    "${1:-build/release/muograph}" plan --roofline "${2:-h100}" --json --depth "$depth" --device-batch-size "$rows" \
      --total-batch-size 524288 --vocab-size 32768 --num-iterations 10 --deterministic "$deterministic" |
      python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)))'
  done
done
