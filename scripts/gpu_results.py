#!/usr/bin/env python3
"""Puts the verdicts of scripts/gpu_check.sh into OUT/checks.json, and date, commit, GPU, driver and
versions into every JSON there. Reads name, exit code and seconds of each check, a line each.
  scripts/gpu_results.py OUT COMMIT_FILE < verdicts          exit code 1 if a check failed"""
import datetime
import json
import pathlib
import subprocess
import sys


def output_of(*command):
    try:
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({error})"


def tests_of(path):
    """How many tests passed, failed and were skipped, and the names of the latter two."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"report": "missing"}
    cases = [(f"{suite['name']}.{case['name']}", case)
             for suite in report["testsuites"] for case in suite["testsuite"]]
    failed = [name for name, case in cases if case.get("failures")]
    skipped = [name for name, case in cases if case.get("result") == "SKIPPED"]
    return {"passed": len(cases) - len(failed) - len(skipped), "failed": failed,
            "skipped": skipped}


def training(out):
    """The last losses of the run on the GPU and of the one on the CPU, and how far they are apart."""
    curves = {}
    for name in ("cuda", "host"):
        path = out / f"train_{name}" / "metrics.jsonl"
        if not path.is_file():
            return {"report": f"train_{name} left no metrics"}
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        curves[name] = {line["step"]: line for line in lines if line["kind"] == "train"}
    steps = sorted(set(curves["cuda"]) & set(curves["host"]))
    if not steps:
        return {"report": "the two runs have no step in common"}
    apart = [curves["cuda"][step]["loss"] - curves["host"][step]["loss"] for step in steps]
    last = {name: curve[steps[-1]] for name, curve in curves.items()}
    return {"steps": len(steps), "rms_nats_apart": (sum(x * x for x in apart) / len(apart)) ** 0.5,
            **{f"{name}_{key}": line[key] for name, line in last.items()
               for key in ("loss", "tokens_per_s", "mfu")}}


def main(out, commit_file):
    facts = {
        "date": datetime.date.today().isoformat(),
        "commit": pathlib.Path(commit_file).read_text().strip(),
        "gpu": output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "command": "scripts/gpu_check.sh",
    }
    fields = sys.stdin.read().split("\n")[:-1]
    checks = {name: {"exit_code": int(code) if code.isdigit() else code, "seconds": int(seconds)}
              for name, code, seconds in zip(fields[::3], fields[1::3], fields[2::3])}
    verdict = {**facts, "checks": checks, "parity": tests_of(out / "parity.json"),
               "contracts": tests_of(out / "contracts.json"),
               "step": tests_of(out / "step.json"), "training": training(out),
               "bench": {path.stem: json.loads(path.read_text())
                         for path in sorted(out.glob("bench_*.txt"))
                         if checks.get(path.stem, {}).get("exit_code") == 0}}
    (out / "checks.json").write_text(json.dumps(verdict, indent=1) + "\n")
    for path in (out / "kernels_bench.json", out / "torch.json"):
        if path.is_file():
            path.write_text(json.dumps({**facts, **json.loads(path.read_text())}, indent=1) + "\n")
    bad = [name for name, check in checks.items() if check["exit_code"] != 0]
    print(f"\n{len(checks) - len(bad)} of {len(checks)} checks passed"
          + (f"; not: {', '.join(bad)}" if bad else ""))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
