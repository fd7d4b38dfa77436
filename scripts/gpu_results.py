#!/usr/bin/env python3
"""Converts the output of scripts/gpu_check.sh in OUT, complete or partial, to JSON for tests/bench/results, and prints
the rows of docs/status.md updated with what ran on the GPU. If several OUTs or calls ran a stage, the last one counts.
  scripts/gpu_results.py OUT... [--results DIR]      exit code 1 if a stage failed
  scripts/gpu_results.py --facts PACK             JSON of the machine at hand, for gpu_check"""
import argparse
import csv
import datetime
import fnmatch
import importlib.metadata
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

from gpu_stage import BAD, RAN, tests_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROFILED = ("gpu__time_duration.sum", "Duration", "SM Frequency", "Compute (SM) Throughput", "DRAM Throughput",
            "L2 Cache Throughput", "Achieved Occupancy", "Registers Per Thread", "Waves Per SM")
NANOCHAT_PUBLISHED = {"tokens_per_s": 546000, "what": "nanochat's own figure for d12 on one H100, with "
                      "FlashAttention-3"}
# The table of docs/status.md: the beginning of each row, and the stages that prove it.
FEATURES = {
    "plain GPT": ["kernel_tests_*", "kernels_*", "models", "device_step_1"],
    "nanochat's extras": ["every_kernel_*", "models", "extras", "step_d12_32"],
    "bf16 compute": ["kernel_tests_*", "kernels_*BF16", "device_step_more", "train_d4"],
    "Muon and AdamW": ["kernel_tests_*", "kernels_Muon*", "kernels_*Adamw*", "train_d4"],
    "ten strategies": ["contract_*", "on_gpus_*", "device_step_2", "device_step_4", "device_step_more",
                       "train_d4_2_ranks"],
    "faster Newton-Schulz": ["kernel_tests_*", "kernels_*SymmetricProduct*"],
    "numerics guard": ["kernel_tests_*", "kernels_AgreeCommit", "kernels_NoteNonfinite"],
    "the gather of weights": ["device_step_more"],
    "`--comm nccl`": ["nccl_*"],
    "NVTX ranges": ["step_d12_*", "step_8_ranks_*", "launch_?", "optimizer_?"],
    "`--gemm-table`": ["gemm_table", "step_gemm_table", "gemm_on_gpu"],
    "`train --backend cuda`": ["train_d4", "train_d4_again", "same_bits", "kill_and_resume", "train_d12", "eval_d12"],
}


def output_of(*command):
    try:
        return subprocess.run(command, text=True, capture_output=True, check=True,
                              timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


def facts(pack):
    def smi(field):
        return output_of("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    nvcc = output_of("nvcc", "--version").splitlines()
    return {"date": datetime.date.today().isoformat(), "commit": (pack / "commit").read_text().strip(),
            "gpu": smi("name"), "driver": smi("driver_version"), "memory": smi("memory.total"),
            "clocks": smi("clocks.max.sm,clocks.max.mem"), "power_limit": smi("power.limit"),
            "nvcc": nvcc[-1] if nvcc else "unknown", "torch": version,
            "python": sys.version.split()[0], "command": "scripts/gpu_check.sh"}


class Stages:
    """The results: the verdicts of the stages and their files."""

    def __init__(self, outs, folder):
        self.folder, self.verdicts, self.facts = folder, {}, {}
        commits = {}  # in order
        for number, archive in enumerate(path for out in outs
                                         for path in sorted(out.glob("call[1-4].tar.gz"))):
            here = folder / str(number)
            try:
                with tarfile.open(archive) as tar:
                    tar.extractall(here)
            except (OSError, tarfile.TarError) as error:
                print(f"{archive}: {error}")
                continue
            commit = (here / "pack/commit").read_text().strip() if (here / "pack/commit").is_file() else "unknown"
            for row in json_lines(here / "verdicts.jsonl"):
                before = self.verdicts.get(row["stage"])
                if row["verdict"] in RAN or before is None:
                    earlier = before.pop("earlier", []) if before else []
                    if before and before["verdict"] in BAD:
                        earlier.append({key: before[key] for key in ("commit", "verdict", "why") if before.get(key)})
                    self.verdicts[row["stage"]] = {**row, "commit": commit, "folder": str(number),
                                                   **({"earlier": earlier} if earlier else {})}
            self.facts |= json_of(here / "machine/stdout.txt") or {}
            commits[commit] = None
        self.facts["commit"] = ", ".join(commits)

    def path(self, stage, name):
        return self.folder / self.verdicts.get(stage, {}).get("folder", "none") / stage / name

    def matching(self, pattern):
        return [name for name in self.verdicts if fnmatch.fnmatch(name, pattern)]

    def pack(self, name):
        return next(iter(sorted(self.folder.glob(f"*/pack/{name}"))), self.folder / "none")

    def row(self, stage):
        """The verdict, the command's measurements and those of nvidia-smi."""
        verdict = self.verdicts[stage]
        seen = {key: verdict[key] for key in ("commit", "peak_gpu_mib", "peak_w", "least_sm_mhz", "why")
                if verdict.get(key)}
        measured = json_of(self.path(stage, "stdout.txt"))
        if measured is None:  # interrupted: use the measurements printed so far
            said = self.path(stage, "stderr.txt")
            text = said.read_text(errors="replace") if said.is_file() else ""
            found = re.findall(r"^(.+): ([\d.]+) ms an? (?:step|update)$", text, re.M)
            measured = {"measured_ms": {name: float(ms) for name, ms in found}} if found else {}
        return {"stage": stage, "verdict": verdict["verdict"], **seen, **measured}


def json_of(path):
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(path):
    """The objects in a JSON Lines file whose last line may be incomplete."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if isinstance(row, dict)]


def checks(stages):
    out = {}
    for name, row in stages.verdicts.items():
        kept = {key: value for key, value in row.items() if key not in ("stage", "command", "kept", "folder")}
        tests = tests_of(stages.path(name, "tests.json"))
        if tests:
            kept["tests"] = {"passed": len(tests["passed"]), "failed": tests["failed"],
                             "skipped": tests["skipped"]}
        out[name] = {key: value for key, value in kept.items() if value not in ("", None)}
    return {"stages": out} if out else None


def gpu_facts(stages):
    out = {"facts": json_lines(stages.path("gpu_facts", "facts.jsonl"))}
    for name in ("products", "products_of_table", "attention"):
        out[name] = json_lines(stages.path(f"facts_{name}", "kernels.jsonl"))
    return out if any(out.values()) else None


def rows_of(stages, *patterns):
    rows = [stages.row(name) for pattern in patterns for name in stages.matching(pattern)
            if stages.verdicts[name]["verdict"] in RAN]
    return {"rows": rows} if rows else None


def kernels(stages):
    out = {}
    for stage, name in (("times", "kernels.jsonl"), ("times_last", "kernels.jsonl"), ("energy", "kernels.jsonl"),
                        ("torch_kernels", "torch.jsonl"), ("torch_products", "products.jsonl")):
        if rows := json_lines(stages.path(stage, name)):
            out[stage] = rows
    for stage in ("ncu", "ncu_step"):
        if rows := profiled(stages.path(stage, "stdout.txt")):
            out[stage] = rows
    return out or None


def profiled(path):
    """The metrics of each kernel, in order of execution."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    table = csv.DictReader(io.StringIO("\n".join(line for line in lines if line.startswith('"'))))
    kernels = {}
    for row in table:
        if row.get("Metric Name") in PROFILED:
            of_kernel = kernels.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            of_kernel[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return list(kernels.values())


def peers(stages):
    """nanochat's figures and ours from the same call."""
    out = {}
    for theirs, ours, figure in (("nanochat", "step_d12", "tokens_per_s"),
                                 ("nanochat_d24", "optimizer_d24", "update_ms")):
        rows = json_lines(stages.path(theirs, "stdout.txt"))
        if not rows:
            continue
        last, mine = rows[-1], json_of(stages.path(ours, "stdout.txt")) or {}
        if "strategies" in mine:
            mine |= mine["strategies"][0]
        out[theirs] = {"nanochat": last, "steps": rows[1:-1], "muograph": mine,
                       "peak_gpu_mib": {name: stages.verdicts.get(name, {}).get("peak_gpu_mib")
                                        for name in (theirs, ours)}}
        joules = (mine.get("power") or {}).get("joules_per_step")
        if joules and last.get("joules_per_step"):
            per_token = joules / mine["tokens_per_step"], last["joules_per_step"] / rows[0]["tokens_per_step"]
            out[theirs]["joules_per_token_over_nanochat"] = per_token[0] / per_token[1]
        if last.get(figure) and mine.get(figure):
            out[theirs][f"{figure}_over_nanochat"] = mine[figure] / last[figure]
    return {**out, "published": NANOCHAT_PUBLISHED} if out else None


def curve(path):
    return {row["step"]: row["loss"] for row in json_lines(path) if row.get("kind") == "train"}


def training(stages):
    out = {}
    for stage, reference in (("train_d4", "bf16"), ("train_d4_2_ranks", "bf16"),
                             ("train_d4_fp32", "fp32")):
        ours = curve(stages.path(stage, "run/metrics.jsonl"))
        host = curve(stages.pack(f"reference_{reference}.jsonl"))
        steps = sorted(set(ours) & set(host))
        if steps:
            apart = [ours[step] - host[step] for step in steps]
            out[stage] = {"against": f"the CPU in {reference}", "steps": len(steps),
                          "losses": [ours[step] for step in steps],
                          "cpu_losses": [host[step] for step in steps],
                          "rms_apart": (sum(x * x for x in apart) / len(apart)) ** 0.5,
                          "last_step": max(ours), "last_loss": ours[max(ours)]}
    for eager in stages.matching("nccl_train_*_eager"):
        stage = eager.removesuffix("_eager")
        out[stage] = {name: [*curve(stages.path(ran, "run/metrics.jsonl")).values()]
                      for name, ran in (("losses", stage), ("eager_losses", eager))}
    if rows := json_lines(stages.path("train_d12", "run/metrics.jsonl")):
        data = json_of(stages.pack("shards.json")) or {}
        tokens = max((row.get("tokens", 0) for row in rows), default=0)
        train_tokens = data.get("tokens", {}).get("train")
        out["train_d12"] = {"data": data.get("what"), "tokens": tokens, "metrics": rows,
                            "epochs": tokens / train_tokens if train_tokens else None}
    samples = stages.path("sample_d4", "stdout.txt")
    if samples.is_file():
        out["sample_d4"] = samples.read_text(errors="replace")
    return out or None


def status(stages, file):
    """The rows of docs/status.md; rows for which no stage ran stay unchanged."""
    where = f"{stages.facts.get('gpu', 'GPU')}, {stages.facts.get('date', '')}"
    for line in (ROOT / "docs/status.md").read_text().splitlines():
        cells = line.split(" | ")
        begin = next((name for name in FEATURES if line.startswith(f"| {name}")), None)
        if begin is None or len(cells) != 4:
            continue
        proof = {name for pattern in FEATURES[begin] for name in stages.matching(pattern)}
        verdicts = {name: stages.verdicts[name]["verdict"] for name in proof}
        bad = sorted(name for name in proof if verdicts[name] in BAD)
        passed = sum(verdict == "passed" for verdict in verdicts.values())
        open_ = sorted(name for name in proof if verdicts[name] not in RAN)
        if bad or passed:
            text = f"failed: {', '.join(bad)}" if bad else f"passed ({passed} stages)"
            text += f"; not run: {', '.join(open_)}" if open_ else ""
            cells[3] = f"{text}: {where}, {file} |"
        print(" | ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="*")
    parser.add_argument("--facts", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "tests/bench/results")
    arguments = parser.parse_args()
    if arguments.facts:
        print(json.dumps(facts(arguments.facts)))
        return 0
    if not arguments.out:
        parser.error("give OUT, the output folder of scripts/gpu_check.sh")
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(arguments.out, pathlib.Path(folder))
        if not stages.verdicts:
            sys.exit(f"gpu_results.py: no verdict of any stage in {', '.join(map(str, arguments.out))}")
        gpu = re.search(r"[A-Z]+\d+", stages.facts.get("gpu", "").removeprefix("NVIDIA"))
        name = f"{stages.facts.get('date', 'undated')}-{gpu[0].lower() if gpu else 'gpu'}"
        arguments.results.mkdir(parents=True, exist_ok=True)
        for topic, report in (("checks", checks(stages)), ("facts", gpu_facts(stages)),
                              ("step", rows_of(stages, "step_*", "gemm_table")),
                              ("kernels", kernels(stages)),
                              ("optimizer", rows_of(stages, "launch_*", "optimizer_*")),
                              ("peers", peers(stages)), ("training", training(stages))):
            if report is not None:
                path = arguments.results / f"{name}-{topic}.json"
                path.write_text(json.dumps({"benchmark": topic, **stages.facts, **report}, indent=1) + "\n")
                print(f"wrote {path}")
        status(stages, f"{name}-checks.json")
        bad = [stage for stage, row in stages.verdicts.items() if row["verdict"] in BAD]
        print(f"{len(stages.verdicts)} stages; " + (f"bad: {', '.join(bad)}" if bad else "none is bad"))
        return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
