#!/usr/bin/env python3
"""Measures the overhead of a sweep on the CPU over its trials' steps; prints it and writes JSON (docs/sweeps.md,
"What it costs").
  scripts/bench_sweep.py --data TEXT --out FILE.json [--program build/release/muograph]
For each model: 24 trials of 200 steps on two devices; and on one device the difference between 50 and 10 trials of 20
steps, which gives the time between two trials."""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = {
    "small": "--depth 2 --max-seq-len 64 --total-batch-size 512 --eval-tokens 64",
    "d4": "--depth 4 --max-seq-len 128 --total-batch-size 128 --eval-tokens 128",
}
TRIALS, STEPS, DEVICES = 24, 200, 2
BETWEEN_STEPS, BETWEEN_TRIALS, REPEATS = 20, (10, 50), 3


def sweep(program, data, options, trials, steps, devices):
    """Runs a sweep; returns the seconds of the whole command and of its trials' steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "sweep"
        command = [program, "sweep", "--data", data, *options.split(), "--out", out, "--trials", str(trials),
                   "--matrix-lr", "log:0.01..0.3", "--num-iterations", str(steps), "--devices", str(devices),
                   "--backend", "host", "--dtype", "fp32"]
        started = time.monotonic()
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - started
        if ended.returncode != 0:
            sys.exit(f"bench_sweep.py: {ended.stderr.strip()}")
        of_steps = 0
        for metrics in out.glob("trials/*/metrics.jsonl"):
            records = [json.loads(line) for line in metrics.read_text().splitlines()]
            of_steps += sum(record["step_ms"] for record in records if record["kind"] == "train") / 1e3
        return seconds, of_steps


def measure(program, data, options):
    seconds, of_steps = sweep(program, data, options, TRIALS, STEPS, DEVICES)
    between = []
    for _ in range(REPEATS):
        few, many = (sweep(program, data, options, trials, BETWEEN_STEPS, 1) for trials in BETWEEN_TRIALS)
        more = BETWEEN_TRIALS[1] - BETWEEN_TRIALS[0]
        between.append(1e3 * ((many[0] - many[1]) - (few[0] - few[1])) / more)
    return {"options": options, "trials": TRIALS, "steps": STEPS, "devices": DEVICES, "command_s": round(seconds, 2),
            "steps_s": round(of_steps / DEVICES, 2), "over_steps": round(seconds * DEVICES / of_steps, 4),
            "between_trials_ms": [round(ms, 1) for ms in between]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--program", default=ROOT / "build/release/muograph")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    results = {"date": datetime.date.today().isoformat(), "version": version, "models": {}}
    for name in options.models:
        row = results["models"][name] = measure(options.program, options.data, MODELS[name])
        print(f"{name}: {TRIALS} trials of {STEPS} steps on {DEVICES} devices: {row['command_s']} s, of which "
              f"{row['steps_s']} s are steps ({row['over_steps']}); between two trials "
              f"{statistics.median(row['between_trials_ms'])} ms")
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
