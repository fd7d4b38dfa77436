#!/usr/bin/env python3
"""Validates the method of `plan --roofline` where it can be measured: of two `muograph bench step --json` results of a
host, the first gives rates by operation, from which the times of the second are predicted by its FLOPs and bytes.
  scripts/check_roofline.py FITTED.json PREDICTED.json >RESULT.json
Exit code 1: an operation that takes over 2 % of the step is off by more than 15 %."""
import json
import sys
from collections import defaultdict

LEAST_SHARE, MOST_ERROR = 0.02, 0.15


def kind(row):
    """Groups matrix products by the transposed operand, with the head's as a separate group."""
    return (row["operation"], row["phase"], row["dtype"], row["shape"].split(" ")[0] if row["operation"] == "gemm" else "")


def work(row):
    return row["gflop"] or row["mb"]


def main(fitted, predicted):
    amount, time = defaultdict(float), defaultdict(float)
    for row in fitted["operations"]["rows"]:
        amount[kind(row)] += work(row)
        time[kind(row)] += row["ms"]
    rows = predicted["operations"]["rows"]
    whole = sum(row["ms"] for row in rows)
    out, sums = [], [0.0, 0.0]
    for row in rows:
        if not amount[kind(row)]:
            continue
        ms = work(row) * time[kind(row)] / amount[kind(row)]
        sums = [sums[0] + ms, sums[1] + row["ms"]]
        if row["ms"] >= LEAST_SHARE * whole:
            out.append({"operation": row["operation"], "shape": row["shape"], "phase": row["phase"],
                        "share": row["ms"] / whole, "measured_ms": row["ms"], "predicted_ms": ms,
                        "error": ms / row["ms"] - 1})
    print(json.dumps({"of_step": sums[1] / whole, "error": sums[0] / sums[1] - 1, "rows": out}, indent=1))
    return any(abs(row["error"]) > MOST_ERROR for row in out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*(json.load(open(path)) for path in sys.argv[1:])))
