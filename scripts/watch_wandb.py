#!/usr/bin/env python3
"""Mirrors a run directory's metrics.jsonl to Weights & Biases.

  scripts/watch_wandb.py RUN [--project NAME] [--follow]

RUN/wandb.json has the id of the W&B run and the last steps logged, so that a later call continues where this one ends
and no step is logged twice, even if training is resumed from an earlier step. --follow: continues until no process
trains in RUN any more. W&B's own files are in RUN/wandb; WANDB_MODE=offline sends nothing. Needs the package wandb.
"""
import argparse
import fcntl
import json
import math
import os
import pathlib
import signal
import sys
import time
import tomllib

POLL_SECONDS = 1
KINDS = ("train", "update", "eval")
NEW = {"id": "", "project": "", "records": 0} | {kind: -1 for kind in KINDS}  # the last step of each kind


def fail(text):
    sys.exit(f"watch_wandb.py: {text}")


class Position:
    """The part of a run directory that W&B already has. Locked by one process at a time."""

    def __init__(self, run):
        self.file = run / "wandb.json"
        self.directory = os.open(run, os.O_RDONLY)
        try:
            fcntl.flock(self.directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"{run}: another process is mirroring it: wait until it ends, or end it")
        self.values = dict(NEW)
        if self.file.is_file():
            try:
                self.values |= json.loads(self.file.read_text())
            except ValueError:
                fail(f"{self.file}: not JSON: remove it to mirror the run from its start, as a new W&B run")

    def save(self):
        temporary = self.file.with_suffix(".json.tmp")
        temporary.write_text(json.dumps(self.values) + "\n")
        temporary.replace(self.file)


class Lines:
    """Reads the complete lines of metrics.jsonl that were not read before, or all of them if training has replaced the
    file."""

    def __init__(self, file):
        self.file, self.inode, self.offset = file, None, 0

    def read(self):
        if not self.file.exists():  # the run has just begun
            return []
        with open(self.file, "rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_ino != self.inode or status.st_size < self.offset:
                self.inode, self.offset = status.st_ino, 0
            opened.seek(self.offset)
            whole = opened.read().rpartition(b"\n")
        self.offset += len(whole[0]) + len(whole[1])
        return [json.loads(line) for line in whole[0].splitlines()]


def is_training(run):
    """True if a process holds the lock of training."""
    try:
        lock = os.open(run / "run.lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(lock)


def values_of(record):
    """The values of a record to log: its numbers, with NaN for non-finite ones."""
    kind = record["kind"]
    values = {"step": record["step"]}
    for key, value in record.items():
        if value is None and record.get("nonfinite") and key not in ("mfu", "val_bpb"):
            value = math.nan
        if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
            values[f"{kind}/{key}"] = value
    return values


def mirror(lines, position, wandb_run):
    count = 0
    for record in lines.read():
        kind, step = record["kind"], record["step"]
        if kind not in KINDS or step <= position.values[kind]:
            continue
        # Saved before logging: if this process is killed in between, a step is missing, but none is logged twice.
        position.values[kind] = step
        position.values["records"] += 1
        position.save()
        wandb_run.log(values_of(record), step=position.values["records"] - 1)
        count += 1
    return count


def start(wandb, run, project, position):
    values = position.values
    if values["id"] and project not in (None, values["project"]):
        fail(f"--project {project}: {run} is mirrored to {values['project']}: give that project, or remove {position.file}")
    values["project"] = values["project"] or project or "muograph"
    values["id"] = values["id"] or os.urandom(4).hex()
    config = tomllib.loads((run / "config.toml").read_text())
    try:
        wandb_run = wandb.init(project=values["project"], id=values["id"], name=run.resolve().name, dir=str(run),
                               config=config, resume="allow")
    except Exception as error:
        fail(f"W&B does not start: {' '.join(str(error).split())}")
    position.save()
    # A step metric of our own: W&B's step must increase with every record, so W&B's step is the number of the record.
    wandb_run.define_metric("step")
    for kind in KINDS:
        wandb_run.define_metric(f"{kind}/*", step_metric="step")
    return wandb_run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN", help="a run directory")
    parser.add_argument("--project", help="project of W&B; default: muograph")
    parser.add_argument("--follow", action="store_true", help="continue until no process trains in RUN any more")
    options = parser.parse_args()
    run = options.run
    if not (run / "config.toml").is_file():
        fail(f"{run}: contains no config.toml: give the directory of a run")
    try:
        import wandb
    except ImportError as error:
        fail(f"the Python package wandb is missing ({error}): pip install wandb")
    position = Position(run)
    wandb_run = start(wandb, run, options.project, position)
    lines, count, code = Lines(run / "metrics.jsonl"), 0, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        going = True
        while going:
            # Checked before reading, because nothing is added afterwards.
            going = options.follow and is_training(run)
            count += mirror(lines, position, wandb_run)
            if going:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        code = 130
    wandb_run.finish()
    print(f"{run}: {count} records to {position.values['project']}/{position.values['id']}")
    sys.exit(code)


if __name__ == "__main__":
    main()
