#!/usr/bin/env python3
"""Tests that after a power failure at any time the same train, sweep or tokenize command continues to the same result,
and that everything reported as saved is still there. disk.py models what a power failure may leave.

    power_loss_test.py PROGRAM RECORDER FOLDER [--states N] [--commands NAME...] [--seed N]

Tests N states of each command: states of an undisturbed run, which defines the result, and of runs that are killed once
and continued. For each kind of fault one state, reduced to as few losses as possible, is shown and kept in FOLDER."""
import argparse
import collections
import concurrent.futures
import csv
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import disk

KILLED = 4  # runs that are killed once


def run(recorder, command, folder, log="/dev/null", kill=0):
    """Runs `command` in the folder and logs the folder's changes; kills it after `kill` changes unless that is 0. The
    recorder's folder is in LD_LIBRARY_PATH, because a space in LD_PRELOAD would end the path."""
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=120,
                          env={**os.environ, "LD_LIBRARY_PATH": str(recorder.parent), "LD_PRELOAD": recorder.name,
                               "POWER_LOSS_ROOT": str(folder), "POWER_LOSS_LOG": str(log), "POWER_LOSS_KILL": str(kill)})


def record(recorder, command, folder, kill=0, refusal=None):
    """Returns the log of a command in an empty folder and its faults. With `kill` it is killed after that many records
    and run again; the second run may fail only where refusal() accepts it."""
    root, log, faults = folder / "disk", folder / "log", []
    root.mkdir(parents=True)
    for after in (kill, 0) if kill else (0,):
        done = run(recorder, command, root, log, after)
        if done.returncode == 0:
            break
        if done.returncode != -9 and (not kill or refusal(done, None)):
            faults.append(f"exit code {done.returncode}, after a kill at record {kill}: {done.stderr.strip()}")
            if not kill:
                raise RuntimeError(f"{command}: {faults[0]}")
    records = disk.read_log(log)
    now = disk.Disk.after(records)
    if now.root.now() != disk.read_tree(root):
        raise RuntimeError(f"{root} differs from {log}: recorder.cpp lacks a call")
    return records, faults + now.faults


def draw_fates(random_, now):
    """Draws the fates of everything that is not durable, with separate random rates of loss for entries and for
    bytes."""
    entries = {number for number, _ in now.changes}
    kept = {of_entry: random_.choice((0, 0.5, 0.9, 1)) for of_entry in (True, False)}
    return {number: 1 if random_.random() < kept[number in entries] else random_.choice((0, random_.random()))
            for number in sorted(now.pending())}


class Search:
    """A search for faulty states of one command; `case` has its arguments, its reports and its result."""

    def __init__(self, recorder, case, folder, seed):
        self.recorder, self.case, self.folder, self.seed = recorder, case, folder, seed
        shutil.rmtree(folder, ignore_errors=True)
        records, faults = record(recorder, case.command(False), folder / "whole")
        self.want = case.result(folder / "whole/disk")
        self.logs = [records]
        kills = random.Random(f"{seed} kills")
        for i in range(KILLED):
            kill = 1 + int(len(self.logs[0]) * (i + kills.random()) / KILLED)
            records, found = record(recorder, case.command(False), folder / f"killed_{i}", kill, case.refusal)
            self.logs.append(records)
            faults += found or self.differences(folder / f"killed_{i}/disk")
        self.found = collections.Counter(map(self.kind, faults))
        self.shown = {self.kind(fault): fault for fault in faults}
        self.folders = itertools.count()

    @staticmethod
    def kind(fault):
        return re.sub(r"\d+", "N", fault)[:90]

    def differences(self, folder):
        try:
            result = self.case.result(folder)
        except (OSError, ValueError) as error:
            return [f"cannot be read after the resumed run: {error}"]
        return [f"{name}: not as in the undisturbed run" for name in sorted({*result, *self.want})
                if result.get(name) != self.want.get(name)]

    def judge(self, now, fates, by_name):
        """Returns the faults of one state."""
        tree, faults = now.crash(fates)
        faults += self.case.missing(now, tree)
        folder = self.folder / f"try_{next(self.folders)}"
        disk.write_tree(tree, folder)
        if refusal := self.case.refusal(done := run(self.recorder, self.case.command(by_name), folder), now):
            faults.append(refusal)
        else:
            faults += [*self.case.resumed(done, now), *self.differences(folder)]
        shutil.rmtree(folder)
        return faults

    def draw(self, number):
        """Draws a log, the number of its records before the crash, and the arguments for judge()."""
        random_ = random.Random(f"{self.seed} {number}")
        log = number % len(self.logs)
        count = random_.choice((len(self.logs[log]), *[random_.randint(1, len(self.logs[log]))] * 7))
        now = disk.Disk.after(self.logs[log][:count])
        return log, count, (now, draw_fates(random_, now), random_.random() < 0.5 and bool(self.case.reports(now)))

    def state(self, number):
        """Returns the kinds of faults of a state. For a new kind, removes losses as long as the fault remains."""
        log, count, (now, fates, by_name) = self.draw(number)
        kinds = {self.kind(fault): fault for fault in self.judge(now, fates, by_name)}
        for kind, fault in kinds.items():
            if kind in self.shown:
                continue
            self.shown[kind] = ""
            lost = {i: fate for i, fate in fates.items() if fate != 1}
            for size in (16, 4, 1):
                numbers = list(lost)
                for begin in range(0, len(numbers), size):
                    fewer = {i: fate for i, fate in lost.items() if i not in numbers[begin:begin + size]}
                    if kind in map(self.kind, self.judge(now, fewer, by_name)):
                        lost = fewer
            kept = self.folder / f"state_{number}"
            if not kept.exists():
                disk.write_tree(now.crash(lost)[0], kept)
            self.shown[kind] = "\n".join(
                [f"{fault}\n  state {number}, seed {self.seed}: crash after record {count} of {len(self.logs[log])} of "
                 f"log {log}; kept in {kept}; resumed {'by name' if by_name else 'by auto'}; lost:",
                 *(f"    {i}: {disk.describe(self.logs[log][:i])}: {fate:.2f}" for i, fate in lost.items())])
        return list(kinds)

    def states(self, count):
        """Tests `count` states and returns a text for each kind of fault."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for kinds in pool.map(self.state, range(count)):
                self.found.update(kinds)
        return [f"{self.found[kind]} times: {text}" for kind, text in self.shown.items()]


def logged(metrics, until=None):
    """Returns the losses and evaluations of a run in order. A trial that has ended is not continued: its log may then
    lack what followed its last checkpoint, of step `until`."""
    records = []
    for line in metrics.read_bytes().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            if until is None:
                raise
    return [[(item["step"], item.get("loss"), item.get("val_loss")) for item in records
             if item["kind"] == kind and (until is None or item["step"] < until)] for kind in ("train", "eval")]


def run_result(folder, has_ended=False):
    newest = max((folder / "checkpoints").glob("step_*"), default=folder / "no checkpoint")
    until = int(newest.name[5:]) if has_ended and newest.exists() else None
    return {f"{folder.name}/step": newest.name, f"{folder.name}/metrics.jsonl": logged(folder / "metrics.jsonl", until),
            f"{folder.name}/config.toml": (folder / "config.toml").read_bytes(),
            **{f"{folder.name}/{name}": (newest / name).read_bytes()
               for name in ("model.safetensors", "optimizer.safetensors")}}


def saved(now, log):
    return [int(step) for step in re.findall(rb"step (\d+): checkpoint saved", now.said[log])]


def item_of(tree, path):
    for part in path.split("/"):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


class Case:
    def __init__(self, program, inputs):
        self.program, self.inputs = program, inputs

    def trains(self, command, by_name, *more):
        where = ["--resume", self.name] if by_name else ["--out", self.name, "--resume", "auto"]
        options = ("--model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 --total-batch-size 768 "
                   "--device-batch-size 4 --warmup-steps 2 --eval-tokens 640 --sample-every -1 --devices 1 "
                   "--embedding-lr 2")
        return [self.program, command, "--data", str(self.inputs / "text.txt"), *where, *options.split(), *more]

    def missing(self, now, tree):
        """Yields the checkpoints that a log reported as saved, that were not removed since, and that are missing."""
        for log in filter(None, now.said):
            for step in saved(now, log):
                path = f"{log.rpartition('/')[0]}/checkpoints/step_{step:08}"
                if (node := now.find(path)) and node.now() != item_of(tree, path):
                    yield f"{path}: was reported saved but is missing"

    def refusal(self, done, _):
        return f"refused: exit code {done.returncode}: {done.stderr.strip()}" if done.returncode else ""

    def resumed(self, done, now):
        return []


class Train(Case):
    name = "train"

    def command(self, by_name):
        return self.trains("train", by_name, "--num-iterations", "10", "--eval-every", "4", "--save-every", "2",
                           "--keep-last", "2")

    def reports(self, now):
        return saved(now, "")

    def refusal(self, done, now):
        return "" if "step_00000010 is at step 10" in done.stderr else super().refusal(done, now)

    def resumed(self, done, now):
        newest = max(self.reports(now), default=0)
        begun = re.search(r"resuming from \S+ at step (\d+)", done.stdout)
        if done.returncode == 0 and newest > (int(begun[1]) if begun else 0):
            yield f"resumed at step {begun and begun[1]}, but step {newest} was reported saved"

    def result(self, folder):
        return run_result(folder / "train")


class Sweep(Case):
    name = "sweep"

    def command(self, by_name):
        return self.trains("sweep", by_name, "--matrix-lr", "0.05..0.3/4", "--num-iterations", "9", "--halving", "3",
                           "--min-steps", "3")

    def reports(self, now):
        return {(int(trial), int(step))
                for trial, step in re.findall(rb"trial (\d+)[^\n]*: held-out [^\n]* at step (\d+)", now.said[""])}

    def missing(self, now, tree):
        yield from super().missing(now, tree)
        journal = item_of(tree, "sweep/sweep.jsonl") or b""
        for trial, step in sorted(self.reports(now)):
            if not re.search(rb'"kind":"result","trial":%d,[^\n]*"step":%d,[^\n]*\n' % (trial, step), journal):
                yield f"sweep/sweep.jsonl: lacks trial {trial}'s result at step {step}, which was reported"

    def result(self, folder):
        with open(folder / "sweep/sweep.csv") as file:
            table = [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]
        out = {"sweep.csv": table, "sweep.toml": (folder / "sweep/sweep.toml").read_bytes()}
        for trial in sorted((folder / "sweep/trials").iterdir()):
            out |= run_result(trial, has_ended=True)
        return out


class Tokenize(Case):
    name = "tokenize"

    def command(self, _):
        return [self.program, "tokenize", "--data", str(self.inputs / "documents.jsonl"), "--tokenizer",
                str(self.inputs / "tokenizer.json"), "--out", "shards", "--shard-tokens", "700", "--val-tokens", "400",
                "--val-every", "10"]

    def reports(self, now):
        return re.findall(rb"shards: \d+ tokens in", now.said[""])

    def missing(self, now, tree):
        for name, contents in now.find("shards").now().items() if self.reports(now) else ():
            if not disk.is_temporary(name) and item_of(tree, f"shards/{name}") != contents:
                yield f"shards/{name}: was reported but is missing"

    def result(self, folder):
        return {path.name: path.read_bytes() for path in (folder / "shards").iterdir()
                if not disk.is_temporary(path.name)}


def write_inputs(folder, program):
    folder.mkdir(parents=True, exist_ok=True)
    text = [f"{i} times {i} is {i * i}. " for i in range(900)]
    (folder / "text.txt").write_text("".join(text))
    (folder / "documents.jsonl").write_text("".join(json.dumps({"text": line * (1 + i % 7)}) + "\n"
                                                    for i, line in enumerate(text[:300])))
    subprocess.run([program, "tokenizer", "train", "--data", folder / "text.txt", "--vocab-size", "300", "--out",
                    folder / "tokenizer.json"], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "recorder", "folder"):
        parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    cases = {case.name: case for case in (Train, Sweep, Tokenize)}
    parser.add_argument("--commands", nargs="+", choices=cases, default=list(cases))
    options = parser.parse_args()
    write_inputs(options.folder, options.program)
    failed = 0
    for name in options.commands:
        case = cases[name](str(options.program), options.folder)
        search = Search(options.recorder, case, options.folder / name, options.seed)
        found = search.states(options.states)
        failed += len(found)
        print("\n".join(found))
        print(f"{name}: {options.states} states, seed {options.seed}, {sum(map(len, search.logs))} records", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
