#!/usr/bin/env python3
"""Measures muograph, llm.c and nanochat on this machine's CPU, alternating within one run; prints a table and writes
JSON. docs/performance.md, "Beside other trainers", describes the comparison.
  scripts/bench_peers.py --llm-c DIR --nanochat DIR --python PYTHON --out FILE.json
PYTHON has PyTorch and filelock. To run only some parts: --only llm.c nanochat scaling memory"""
import argparse
import array
import contextlib
import datetime
import json
import math
import os
import pathlib
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

from gpu_results import output_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("llm.c", "nanochat", "scaling", "memory")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}  # our name, nanochat's
COMPILE = ("gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-Wno-unused-result")
# Magic numbers and versions of llm.c's checkpoints, and of shards, whose format muograph shares.
CHECKPOINT_MAGIC, CHECKPOINT_VERSION = 20240326, 3
SHARD_MAGIC, SHARD_VERSION, HEADER = 20240520, 1, 256
SHARD_TOKENS, PADDED_TO = 1 << 20, 128
POLL_SECONDS = 0.05


class Configuration:
    """The training setup, read from a configuration file of `muograph train`."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        options = tomllib.loads(path.read_text())
        self.model = options["model"]
        self.layers = options.get("n-layer", options.get("depth"))
        self.width = options.get("n-embd", -(-64 * self.layers // 128) * 128)
        self.heads, self.vocabulary = options["n-head"], options["vocab-size"]
        self.length, self.rows = options["max-seq-len"], options["device-batch-size"]
        self.window_pattern = options.get("window-pattern", "SSSL")
        self.tokens, self.devices = options["total-batch-size"], options["devices"]
        self.accumulation = self.tokens // (self.devices * self.rows * self.length)

    def facts(self):
        return {key: value for key, value in vars(self).items() if key not in ("name", "path")} | {
            "file": os.path.relpath(self.path, ROOT)}

    def shard(self, folder):
        path = folder / f"{self.vocabulary}.bin"
        if not path.exists():
            rng = random.Random(42)
            tokens = array.array("H", rng.choices(range(self.vocabulary), k=SHARD_TOKENS))
            header = array.array("i", [SHARD_MAGIC, SHARD_VERSION, len(tokens)] + [0] * (HEADER - 3))
            path.write_bytes(header.tobytes() + tokens.tobytes())
        return path


class Contestant:
    """A trainer and its measurements: seconds of each step, by round, and the peak memory of its process."""

    def __init__(self, name, configuration, tokens):
        self.name, self.configuration, self.tokens = name, configuration, tokens
        self.command, self.rounds, self.updates, self.peak_mib = [], [], [], 0.0

    def check(self, loss):
        """Exits if the first loss is far from ln V, which means that the trainer does not work."""
        expected = math.log(self.configuration.vocabulary)
        if not abs(loss - expected) < 1:
            sys.exit(f"{self.name}: the first loss is {loss}, not about {expected:.2f}")

    def read_peak(self, pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        self.peak_mib = max(self.peak_mib, int(kib) / 1024)

    def seconds(self):
        return statistics.median(seconds for one in self.rounds for seconds in one)

    def facts(self):
        samples = [seconds for one in self.rounds for seconds in one]
        updates = {"update_s": statistics.median(self.updates)} if self.updates else {}
        return {"configuration": self.configuration.name, "name": self.name,
                "command": shlex.join(map(str, self.command)), "tokens_per_step": self.tokens,
                "step_s": samples, "median_s": self.seconds(), "min_s": min(samples),
                "max_s": max(samples), **updates, "tokens_per_s": self.tokens / self.seconds(),
                "peak_mib": self.peak_mib}


class Ours(Contestant):
    """`muograph train`: one process per round, killed after its steps, so that it saves nothing."""

    def __init__(self, arguments, folder, configuration, name, *, devices=None, dtype="fp32"):
        devices = devices or configuration.devices
        tokens = configuration.tokens // configuration.devices * devices
        super().__init__(name, configuration, tokens)
        self.command = [
            arguments.muograph, "train", "--config", configuration.path, "--backend", "host",
            "--devices", devices, "--device-batch-size", configuration.rows,  # reset by --devices
            "--total-batch-size", tokens, "--dtype", dtype, "--data",
            configuration.shard(folder), "--eval-every", -1, "--save-every", -1, "--sample-every",
            -1, "--num-iterations", 1000, "--out",
            folder / f"run_{configuration.name}_{devices}_{dtype}"]

    def measure(self, steps):
        *command, out = self.command
        out = pathlib.Path(f"{out}_{len(self.rounds)}")
        with open(f"{out}.log", "w+") as log:
            process = subprocess.Popen([str(word) for word in (*command, out)], stdout=log,
                                       stderr=log)
            try:
                while len(lines := self.train_lines(out)) < steps + 1:
                    if process.poll() is not None:
                        log.seek(0)
                        sys.exit(f"{self.name}: exit {process.returncode}\n{log.read()}")
                    time.sleep(POLL_SECONDS)
                self.read_peak(process.pid)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.check(lines[0]["loss"])
        self.rounds.append([line["step_ms"] / 1000 for line in lines[1 : steps + 1]])

    @staticmethod
    def train_lines(out):
        try:
            text = (out / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        return [line for line in lines if line["kind"] == "train"]

    def close(self):
        pass


class Worker:
    """A process that runs a step for each line it reads, and answers with a line of JSON."""

    def __init__(self, command, environment):
        self.command, self.environment, self.process = command, environment, None

    def step(self, mode):
        if self.process is None:
            self.process = subprocess.Popen(
                [str(word) for word in self.command], stdin=subprocess.PIPE, text=True,
                stdout=subprocess.PIPE, env={**os.environ, **self.environment})
        print(mode, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("{") and "seconds" in (answer := json.loads(line)):
                return answer
        sys.exit(f"{shlex.join(map(str, self.command))}: exit {self.process.wait()}")

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


class Peer(Contestant):
    """One mode of a worker, whose first step is not counted."""

    def __init__(self, name, configuration, tokens, worker, mode="eager"):
        super().__init__(name, configuration, tokens)
        variables = [f"{key}={value}" for key, value in worker.environment.items()]
        self.command, self.worker, self.mode = [*variables, *worker.command], worker, mode

    def measure(self, steps):
        if not self.rounds:
            loss = float(self.worker.step(self.mode)["loss"])  # llm.c prints it as text, possibly nan
            if self.mode == "eager":  # the other mode continues from these weights
                self.check(loss)
        answers = [self.worker.step(self.mode) for _ in range(steps)]
        self.read_peak(self.worker.process.pid)
        self.rounds.append([answer["seconds"] for answer in answers])
        self.updates += [answer["update"] for answer in answers]

    def close(self):
        self.worker.close()


def write_checkpoint(path, p):
    """Writes random weights of GPT-2's shapes in llm.c's order."""
    layers, n = p.layers, p.width
    padded = -(-p.vocabulary // PADDED_TO) * PADDED_TO
    rng = random.Random(42)
    normal = array.array("f", (rng.gauss(0, 0.02) for _ in range(65521)))  # a prime length, as they are repeated
    zero, one = array.array("f", [0.0]), array.array("f", [1.0])
    tensors = [  # wte, wpe, ln1, qkv, attproj, ln2, fc, fcproj, lnf; weights, then biases
        (padded * n, normal), (p.length * n, normal), (layers * n, one), (layers * n, zero),
        (layers * 3 * n * n, normal), (layers * 3 * n, zero), (layers * n * n, normal),
        (layers * n, zero), (layers * n, one), (layers * n, zero), (layers * 4 * n * n, normal),
        (layers * 4 * n, zero), (layers * 4 * n * n, normal), (layers * n, zero), (n, one), (n, zero)]
    sizes = [CHECKPOINT_MAGIC, CHECKPOINT_VERSION, p.length, p.vocabulary, layers, p.heads, n, padded]
    with open(path, "wb") as file:
        array.array("i", sizes + [0] * (HEADER - len(sizes))).tofile(file)
        for size, values in tensors:
            (values * (size // len(values) + 1))[:size].tofile(file)


def llm_c(arguments, folder, p):
    program, checkpoint = folder / "peer_llmc", folder / "checkpoint.bin"
    source = ROOT / "scripts/peer_llmc.c"
    subprocess.run([*COMPILE, "-I", arguments.llm_c, source, "-lm", "-o", program], check=True)
    write_checkpoint(checkpoint, p)
    worker = Worker([program, checkpoint, p.shard(folder), p.rows, p.length], threads())
    return Peer("llm.c", p, p.rows * p.length, worker)


def threads():
    return {"OMP_NUM_THREADS": str(os.cpu_count())}


def torch_worker(arguments, model, c, rows, environment):
    size = {"model": model, "checkout": str(arguments.nanochat), "layers": c.layers,
            "width": c.width, "heads": c.heads, "vocabulary": c.vocabulary, "length": c.length,
            "window_pattern": c.window_pattern, "rows": rows, "threads": os.cpu_count(),
            "micro_steps": c.tokens // (rows * c.length)}
    script = ROOT / "scripts/peer_torch.py"
    return Worker([arguments.python, script, json.dumps(size)], threads() | environment)


def contests(arguments, folder):
    """Yields groups of contestants that are measured in alternation."""
    p = Configuration("P", arguments.p)
    parts = set(arguments.only)
    if parts - {"nanochat"}:
        contest = [Ours(arguments, folder, p, "muograph")]
        if "scaling" in parts:
            contest.append(Ours(arguments, folder, p, "muograph, 1 device", devices=1))
        if parts & {"llm.c", "memory"}:
            contest.append(llm_c(arguments, folder, p))
        if "memory" in parts:
            worker = torch_worker(arguments, "plain", p, p.rows, {})
            contest.append(Peer("PyTorch", p, p.tokens, worker))
        yield contest
    if "nanochat" in parts:
        n = Configuration("N", arguments.n)
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        for dtype, theirs in DTYPES.items():
            worker = torch_worker(arguments, "nanochat", n, arguments.nanochat_rows,
                                  cache | {"NANOCHAT_DTYPE": theirs})
            yield [Ours(arguments, folder, n, f"muograph, {dtype}", dtype=dtype),
                   *(Peer(f"nanochat, {dtype}, {mode}", n, n.tokens, worker, mode)
                     for mode in ("eager", "compiled"))]


def measure(contest, arguments):
    with contextlib.ExitStack() as closing:
        for contestant in contest:
            closing.callback(contestant.close)
        for index in range(arguments.rounds):
            for contestant in contest:
                contestant.measure(arguments.steps)
                shown = ", ".join(f"{seconds:.2f}" for seconds in contestant.rounds[-1])
                print(f"round {index + 1}: {contestant.configuration.name}, {contestant.name}: "
                      f"{shown} s", flush=True)


def speed(what, goal, ours, theirs, seconds=None):
    """The ratio of the medians of tokens per second, and its range over the rounds."""
    def rate(tokens, one):
        return tokens / statistics.median(one)
    by_round = [rate(ours.tokens, a) / rate(theirs.tokens, b)
                for a, b in zip(ours.rounds, theirs.rounds)]
    ratio = ours.tokens / ours.seconds() / (theirs.tokens / (seconds or theirs.seconds()))
    spread = {} if seconds else {"lowest_round": min(by_round), "highest_round": max(by_round)}
    return {"what": what, "goal": goal, "ratio": ratio, **spread}


def ratios(results, parts):
    by_name = {(c.configuration.name, c.name): c for c in results}
    ours = by_name.get(("P", "muograph"))
    peer = by_name.get(("P", "llm.c"))
    if "llm.c" in parts:
        yield speed("P: tokens/s over llm.c", 4.8, ours, peer)
        update = statistics.median(peer.updates)  # the peer updates once per rows x T tokens
        shared = peer.seconds() - update + update * peer.tokens / ours.tokens
        yield speed("P: the same, its update once in as many tokens as ours", None, ours, peer,
                    shared)
    if "scaling" in parts:
        yield speed("P: tokens/s on 2 devices over 1", 1.9, ours, by_name["P", "muograph, 1 device"])
    if "memory" in parts:
        for other in (peer, by_name["P", "PyTorch"]):
            yield {"what": f"P: peak memory, {other.name} over muograph", "goal": 2,
                   "ratio": other.peak_mib / ours.peak_mib}
    if "nanochat" in parts:
        for dtype, goal in zip(DTYPES, (1.6, 2.5)):
            best = min((by_name["N", f"nanochat, {dtype}, {mode}"] for mode in ("eager", "compiled")),
                       key=Contestant.seconds)
            yield speed(f"N: tokens/s over {best.name}", goal, by_name["N", f"muograph, {dtype}"],
                        best)


def cpu():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    names = [facts[key].strip() for key in ("model name", "cpu family", "model")]
    return {"name": "{}, family {}, model {}".format(*names), "cores": os.cpu_count(),
            "bf16": "_bf16" in facts["flags"]}


def versions(arguments):
    def commit(folder):
        git = ("git", "-C", str(folder))
        changed = output_of(*git, "status", "--porcelain", "--untracked-files=no")
        return output_of(*git, "rev-parse", "HEAD") + (" (changed)" if changed else "")
    return {"muograph": commit(ROOT), "llm.c": commit(arguments.llm_c),
            "nanochat": commit(arguments.nanochat),
            "torch": output_of(arguments.python, "-c", "import torch; print(torch.__version__)"),
            "gcc": output_of("gcc", "-dumpfullversion")}


def show(report):
    row = "{:<4}{:<28}{:>10}{:>20}{:>10}{:>10}"
    print("\n" + row.format("", "", "s/step", "min to max", "tokens/s", "peak MiB"))
    for r in report["results"]:
        print(row.format(r["configuration"], r["name"], f"{r['median_s']:.2f}",
                         f"{r['min_s']:.2f} to {r['max_s']:.2f}", f"{r['tokens_per_s']:.0f}",
                         f"{r['peak_mib']:.0f}"))
    print()
    for r in report["ratios"]:
        rounds = (f" (rounds {r['lowest_round']:.2f} to {r['highest_round']:.2f})"
                  if "lowest_round" in r else "")
        goal = f", goal {r['goal']}" if r["goal"] else ""
        print(f"{r['what']}: {r['ratio']:.2f}{rounds}{goal}")


def absolute(path):
    return pathlib.Path(path).absolute()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--llm-c", type=absolute, required=True, help="a checkout of llm.c")
    add("--nanochat", type=absolute, required=True, help="a checkout of nanochat")
    add("--python", required=True, help="a Python with PyTorch and filelock")
    add("--muograph", type=absolute, default=ROOT / "build/release/muograph")
    add("--out", type=absolute, required=True, help="where the JSON goes")
    add("--only", nargs="+", choices=PARTS, default=PARTS)
    add("--rounds", type=int, default=3, help="number of rounds; each measures every contestant once")
    add("--steps", type=int, default=1, help="counted in a turn")
    add("--p", type=absolute, default=ROOT / "configs/bench_p.toml")
    add("--n", type=absolute, default=ROOT / "configs/bench_n.toml")
    add("--nanochat-rows", type=int, default=8, help="of nanochat's micro-steps")
    arguments = parser.parse_args()
    report = {"benchmark": "peers", "date": datetime.date.today().isoformat(),
              "command": shlex.join(sys.argv), "cpu": cpu(), "load_before": os.getloadavg()[0],
              "versions": versions(arguments)}
    results = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that child processes end, too
    with tempfile.TemporaryDirectory() as folder:
        for contest in contests(arguments, pathlib.Path(folder)):
            measure(contest, arguments)
            results += contest
    report["configurations"] = {c.configuration.name: c.configuration.facts() for c in results}
    report["results"] = [contestant.facts() for contestant in results]
    report["ratios"] = list(ratios(results, arguments.only))
    text = json.dumps(report, indent=1)
    for path, name in ((folder, "TMP"), (arguments.out, "FILE.json"), (arguments.llm_c, "LLM_C"), (arguments.python, "PYTHON"),
                        (arguments.nanochat, "NANOCHAT"), (f"{ROOT}/", "")):
        text = text.replace(str(path), name)  # paths of this machine are meaningless elsewhere
    arguments.out.write_text(text + "\n")
    show(report)


if __name__ == "__main__":
    main()
