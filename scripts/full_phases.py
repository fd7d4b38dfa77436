#!/usr/bin/env python3
"""Tracks when each phase of .ci/full last passed, in tests/bench/results/full.json.

    scripts/full_phases.py                         lists the phases that passed more than 150 commits ago
    scripts/full_phases.py record PHASE SECONDS    records that this commit passes PHASE

scripts/check_tree.py fails if a phase last passed more than 600 commits ago."""
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/bench/results/full.json"
OLD, TOO_OLD = 150, 600


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], text=True, capture_output=True).stdout.strip()


def older_than(commits):
    """Yields a line for each phase that passed more than `commits` ago, or at a commit that this clone lacks."""
    record = json.loads(RECORD.read_text())
    phases = subprocess.run([ROOT / ".ci/full"], text=True, capture_output=True, check=True).stdout.split()
    for phase in phases:
        last = record.get(phase)
        if last is None:
            if commits < TOO_OLD:  # a new phase may take some time until it passes first
                yield f".ci/full {phase}: has not passed yet; run it"
        elif not (age := git("rev-list", "--count", f"{last['commit']}..HEAD")):
            yield f".ci/full {phase}: passed at {last['commit']}, a commit missing here; run it"
        elif int(age) > commits:
            yield f".ci/full {phase}: passed {age} commits ago ({last['date']}); run it"
    for phase in sorted(set(record) - set(phases)):
        yield f"{RECORD.relative_to(ROOT)}: .ci/full has no phase '{phase}'"


def main(arguments):
    if arguments[:1] == ["record"]:
        record = json.loads(RECORD.read_text())
        record[arguments[1]] = {"commit": git("rev-parse", "--short=12", "HEAD"), "date": time.strftime("%Y-%m-%d"),
                                "minutes": round(int(arguments[2]) / 60)}
        RECORD.write_text("{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record)) + "\n}\n")
    else:
        print("\n".join(older_than(OLD)) or f"every phase of .ci/full has passed in the last {OLD} commits")


if __name__ == "__main__":
    main(sys.argv[1:])
