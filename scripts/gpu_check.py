#!/usr/bin/env python3
"""Runs one of the calls of scripts/gpu_stages.py on a machine with a GPU, from the archive that scripts/gpu_pack.sh
made on another machine. It needs no compiler, packages, network or checkout.
  mkdir pack && tar -xf gpu_binaries.tar.gz -C pack && pack/scripts/gpu_check.sh CALL SECONDS OUT [STAGE...]
Each stage has a time limit and ends with a verdict line; it is then saved in OUT, whatever happens later:
OUT/callN.txt (the lines), OUT/callN.tar.gz (all output, rewritten after each stage) and OUT/callN_STAGE.tar.gz (a
large file worth keeping). There are at most 8 files of at most 15 MiB each. A stage is started only if enough of
SECONDS is left. STAGEs, of any call, run first, after `machine`.
Exit code 1 if a stage failed, 2 for bad arguments; scripts/gpu_results.py OUT evaluates the results."""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gpu_archives
import gpu_stage
import gpu_stages
from gpu_stage import BAD

PACK = pathlib.Path(__file__).resolve().parent.parent  # contains this script's folder
PATIENCE = int(os.environ.get("MUO_CHECK_PATIENCE", "1"))  # multiplies the stages' time limits
GRACE = 5  # seconds from SIGTERM to SIGKILL, and from there until the process is abandoned
LEAST = 10  # minimum number of seconds left to start a stage
AT_ONCE = 8  # parallel stages
MOST_RESTARTS = 12
MONITOR = ["nvidia-smi", "--query-gpu=timestamp,memory.used,utilization.gpu,power.draw,clocks.sm,"
           "temperature.gpu", "--format=csv,noheader,nounits", "-lms", "500"]


def cuda_libraries():
    """The folders with CUDA's libraries: those of PyTorch's Python packages, then those of a toolkit."""
    roots = {pathlib.Path(p) for p in sys.path if p}
    found = {str(f.parent) for root in roots for f in root.glob("nvidia/**/lib*.so.*")}
    toolkit = pathlib.Path("/usr/local/cuda/lib64")
    return [*sorted(found), *([str(toolkit)] if toolkit.is_dir() else [])]


def tail(path, lines=12):
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def print_line(text):
    """Prints a line, and continues the call even if nobody reads standard output any more."""
    try:
        print(text, flush=True)
    except OSError:
        pass


class Child:
    """A command in its own process group, with output to files so that no pipe can block."""

    def __init__(self, command, folder, environment):
        with open(folder / "stdout.txt", "ab") as out, open(folder / "stderr.txt", "ab") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command], cwd=folder, env=environment, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self, seconds):
        """Returns the exit code, negative for a signal; None if it was terminated after this time."""
        try:
            code = self.process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            code = None
        self.end()  # also ends remaining child processes
        return code

    def end(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
            try:  # a process that hangs in the driver cannot be killed: do not wait for it
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue


class Check:
    """The state of a call: its folders and the verdicts of finished stages."""

    def __init__(self, call, seconds, out, work):
        self.call, self.work = call, work
        self.start = time.monotonic()
        self.deadline = self.start + seconds
        self.pack, self.stages = PACK, work / "stages"
        self.verdicts, self.unavailable, self.children = {}, {}, set()
        self.lock = threading.RLock()
        self.results = gpu_archives.ResultFolder(out, call, self.stages)
        self.stages.mkdir()
        (self.stages / "pack").mkdir()  # also return the references of the results
        for name in ("commit", "reference_fp32.jsonl", "reference_bf16.jsonl", "shards.json"):
            if (self.pack / name).is_file():
                shutil.copy(self.pack / name, self.stages / "pack" / name)
        self.libraries = ":".join(cuda_libraries())
        self.use_libraries_that_load()
        self.monitor = self.start_monitor()

    def use_libraries_that_load(self):
        """Uses the machine's own C++ library if the packed one needs a newer C library than the machine has."""
        shown = subprocess.run([self.pack / "muograph", "--version"], capture_output=True, text=True,
                               timeout=60)
        if shown.returncode != 0:
            for name in ("libstdc++.so.6", "libgcc_s.so.1"):
                (self.pack / name).unlink(missing_ok=True)
            self.results.line(f"using the machine's own C++ library; with the packed one: {shown.stderr.strip()}")

    def start_monitor(self):
        self.gpu_log = self.stages / "gpu.csv"
        longest = ["timeout", "-s", "KILL", f"{self.left() + 60:.0f}"]  # in case this program is killed
        try:
            with open(self.gpu_log, "wb") as log:
                return subprocess.Popen([*longest, *MONITOR], stdout=log, stderr=subprocess.DEVNULL,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError:
            return None

    def environment(self, stage):
        out = {**os.environ, **stage.environment}
        out["PYTHONDONTWRITEBYTECODE"] = "1"
        # PyTorch finds its own libraries; our programs find the others through $ORIGIN.
        if not stage.python:
            out["LD_LIBRARY_PATH"] = ":".join(
                part for part in (stage.libraries and str(self.pack / stage.libraries), self.libraries,
                                  os.environ.get("LD_LIBRARY_PATH")) if part)
            # Algorithms of products are measured anew in this check.
            out["XDG_CACHE_HOME"] = str(self.work / "cache")
        return out

    def folder(self, name):
        return self.stages / name

    def passed(self, name):
        return self.verdicts.get(name, {}).get("verdict") == "passed"

    def left(self):
        return self.deadline - time.monotonic()

    # --- one stage

    def run(self, stage):
        begin = time.monotonic()
        record = {"stage": stage.name, "call": self.call, "at_s": round(begin - self.start, 1)}
        try:
            reason = self.reason_against(stage)
            record.update(self.execute(stage) if reason is None else
                          {"verdict": reason[0], "why": reason[1]})
        except Exception as error:  # an error of this program: continue the call
            record.update(verdict="failed", why=f"{type(error).__name__}: {error}")
        record["seconds"] = round(time.monotonic() - begin, 2)
        self.end(stage, record)

    def reason_against(self, stage):
        if stage.tool and stage.tool in self.unavailable:
            return "tool unavailable", self.unavailable[stage.tool]
        if stage.libraries and not (self.pack / stage.libraries).is_dir():
            return "tool unavailable", f"the archive has no {stage.libraries}"
        if stage.after and not self.passed(stage.after):
            return "skipped", f"{stage.after} did not pass"
        if self.left() - 2 * GRACE < min(stage.least or LEAST, stage.seconds):
            return "no time", f"{max(self.left(), 0):.0f} s left"
        return None

    def execute(self, stage):
        folder = self.folder(stage.name)
        folder.mkdir()
        command = stage.command(self) if callable(stage.command) else list(stage.command)
        if stage.tool:
            program = shutil.which(stage.tool) or f"/usr/local/cuda/bin/{stage.tool}"
            if not os.path.exists(program):
                self.unavailable[stage.tool] = f"{stage.tool} is not on this machine"
                return {"verdict": "tool unavailable", "why": self.unavailable[stage.tool]}
            command[0] = program
        limit = min(stage.seconds * PATIENCE, self.left() - 2 * GRACE)
        said = " ".join(map(str, command))
        record = {"command": said.replace(str(self.work), "WORK").replace(str(self.pack), "PACK"),
                  "limit_s": round(limit, 1)}
        (folder / "command.txt").write_text(record["command"] + "\n")
        seen = self.gpu_log.stat().st_size if self.gpu_log.is_file() else 0
        code = self.execute_within(stage, command, folder, limit, record)
        record["exit"] = code
        record.update(peak_of(self.gpu_log, seen))
        verdict, why = stage.judge(folder, code)
        if code is None:
            why = f"after {limit:.0f} s" + (f"; {why}" if why else "")
            verdict = "hung" if verdict == "hung" else "timeout"
        elif record.get("restarts") and verdict == "passed":
            verdict, why = "failed", "ended and was started again after cases " + ", ".join(
                map(str, record["restarts"]))
        if verdict == "tool unavailable" and stage.tool:
            self.unavailable[stage.tool] = why
        return {**record, "verdict": verdict, "why": why}

    def execute_within(self, stage, command, folder, limit, record):
        """Runs the command. If its cases are numbered, a case that crashes the command does not prevent the other
        cases."""
        end = time.monotonic() + limit
        more = []
        for _ in range(MOST_RESTARTS):
            child = Child([*command, *more], folder, self.environment(stage))
            self.children.add(child)
            code = child.wait(end - time.monotonic())
            self.children.discard(child)
            if not stage.numbered or code in (0, None, 2, gpu_stage.CASES_FAILED):
                break
            last = last_case(folder / "stdout.txt")
            record.setdefault("restarts", [])
            if last is None or (record["restarts"] and last <= record["restarts"][-1]):
                break
            record["restarts"].append(last)
            more = ["--from", last + 1]
        return code

    def end(self, stage, record):
        with self.lock:
            self.verdicts[stage.name] = record
            folder = self.folder(stage.name)
            ran = "exit" in record
            details = []
            if ran:
                figures = headline(folder)
                details = [f"{record['seconds']:.1f} s", *([figures] if figures else [])]
                record["kept"] = self.keep(stage, folder)
            why = f": {record['why']}" if record.get("why") else ""
            line = (f"call {self.call} {record['at_s']:7.1f} s  [{record['verdict']}] {stage.name}{why}"
                    + (f" ({'; '.join(details + record.get('kept', []))})" if details else ""))
            print_line(line)
            if record["verdict"] in BAD and ran:
                for name in ("stdout.txt", "stderr.txt"):
                    for text in tail(folder / name):
                        print_line(f"    {text[:200]}")
            try:
                with open(self.stages / "verdicts.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                self.results.line(line)
                self.results.save()
            except OSError as error:  # possibly a disk that is full for a while
                print_line(f"    not saved: {error}")

    def keep(self, stage, folder):
        try:
            return [self.results.keep(path, stage.name) for pattern in stage.keep
                    for path in sorted(folder.glob(pattern))]
        except OSError as error:
            return [f"not kept: {error}"]

    def terminate(self):
        self.deadline = 0  # no further stage starts
        self.stop()
        sys.exit(143)

    def stop(self):
        for child in list(self.children):
            child.end()
        if self.monitor is not None:
            os.killpg(self.monitor.pid, signal.SIGKILL)


def last_case(path):
    """The number of the last case that a program with numbered cases started."""
    found = [int(match[1]) for line in tail(path, 50) if (match := re.match(r"\[(\d+)\]", line))]
    return found[-1] if found else None


def peak_of(log, seen):
    """The peaks that nvidia-smi recorded since the log was `seen` bytes long."""
    try:
        with open(log, "rb") as file:
            file.seek(seen)
            rows = [line.split(", ") for line in file.read().decode().splitlines()]
        rows = [[float(cell) for cell in row[1:5]] for row in rows if len(row) == 6]
    except (OSError, ValueError):
        return {}
    if not rows:
        return {}
    used, _, power, clock = (max(column) for column in zip(*rows))
    return {"peak_gpu_mib": used, "peak_w": power, "peak_sm_mhz": clock,
            "least_sm_mhz": min(row[3] for row in rows)}


def headline(folder):
    """The main figures of a benchmark whose output, or its last line, is JSON."""
    try:
        text = (folder / "stdout.txt").read_text().strip()
        facts = json.loads(text if text.startswith("{\n") else text.splitlines()[-1])
        picked = {key: facts[key] for key in ("step_ms", "tokens_per_s", "share", "mfu") if facts.get(key)}
    except (OSError, ValueError, AttributeError, TypeError, IndexError):
        return ""
    return ", ".join(f"{key} {value:.4g}" for key, value in picked.items())


def run_call(check, stages):
    for parallel, group in itertools.groupby(stages, key=lambda stage: stage.parallel):
        if parallel:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(check.run, group))
        else:
            for stage in group:
                check.run(stage)


def chosen(check, first):
    """The named stages, followed by those of the call. STAGE* names all stages with that prefix."""
    calls = {number: make(check) for number, make in gpu_stages.CALLS.items()}
    everything = {stage.name: stage for stages in (*calls.values(), gpu_stages.by_name_only(check)) for stage in stages}
    named = ["machine"]  # identifies the machine of the results
    for name in first:
        found = [one for one in everything if one == name or
                 (name.endswith("*") and one.startswith(name[:-1]))]
        if not found:
            sys.exit(f"gpu_check.py: no stage is called {name}; stages are {', '.join(everything)}")
        named += [one for one in found if one not in named]
    rest = [stage for stage in calls[check.call] if stage.name not in named]
    return [everything[name] for name in named] + rest


def main(arguments):
    if len(arguments) < 3 or arguments[0] not in map(str, gpu_stages.CALLS) or not arguments[1].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    call, seconds, out, *first = arguments
    if not (PACK / "tests.json").is_file():
        print(f"gpu_check.py: {PACK} is not an archive of scripts/gpu_pack.sh: unpack its archive into an empty "
              "folder, and run the scripts/gpu_check.sh there", file=sys.stderr)
        return 2
    if any(pathlib.Path(out).glob(f"call{call}*")):
        print(f"gpu_check.py: {out} has results of call {call}: give another folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gpu_check_", ignore_cleanup_errors=True) as work:
        check = Check(int(call), int(seconds), pathlib.Path(out).absolute(), pathlib.Path(work))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: check.terminate())
        try:
            run_call(check, chosen(check, first))
        finally:
            check.stop()
            with check.lock:
                check.results.save()
    bad = [name for name, record in check.verdicts.items() if record["verdict"] in BAD]
    by_verdict = sorted(record["verdict"] for record in check.verdicts.values())
    print_line("; ".join(f"{verdict}: {len(list(group))}" for verdict, group in
                  itertools.groupby(by_verdict)) + (f"; bad: {', '.join(bad)}" if bad else ""))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
