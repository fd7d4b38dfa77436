#!/usr/bin/env python3
"""Kills a run in its middle, resumes it, and compares its end with that of an uninterrupted run, bit by bit.
  scripts/gpu_resume.py RUN COMMAND...    RUN: the directory of a finished run of the same COMMAND, a muograph train;
                                          the other run is in ./run
Exit code 1 if the ends differ, or if the run ended before it could be killed."""
import filecmp
import json
import pathlib
import subprocess
import sys
import time

from gpu_prepare import train_lines

POLL_SECONDS = 0.002


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step_*"))


def main(whole, *command):
    run = pathlib.Path("run")
    end = checkpoints(pathlib.Path(whole))[-1]
    steps = int(end.name.removeprefix("step_"))
    # Waiting for saves leaves time to kill the run before its end.
    command = [*command, "--out", run, "--save-every", str(max(1, steps // 3)), "--save-mode", "wait", "--resume", "auto"]
    process = subprocess.Popen(command)
    while not checkpoints(run) or len(train_lines(run / "metrics.jsonl")) < steps // 2:
        if process.poll() is not None:
            sys.exit(f"gpu_resume.py: the run ended with code {process.returncode} before it could be killed")
        time.sleep(POLL_SECONDS)
    process.kill()
    process.wait()
    killed = {"steps": steps, "killed_after": len(train_lines(run / "metrics.jsonl")),
              "resumed_from": checkpoints(run)[-1].name}
    subprocess.run(command, check=True)
    differ = [name for name in ("model.safetensors", "optimizer.safetensors")
              if not filecmp.cmp(end / name, run / "checkpoints" / end.name / name, shallow=False)]
    print(json.dumps({**killed, "differ": differ}))
    return int(bool(differ))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
