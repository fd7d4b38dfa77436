#!/usr/bin/env python3
"""Tests every command in the documents: each runs in a folder with the files that it names, training with a tiny model
and two steps, unless it is in RUN_ELSEWHERE. No command may need a program that only scripts/setup.sh --dev installs.
  tests/system/documents_test.py BUILD"""
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Commands that are not run here, by a part of the command: either the file that runs them, which must name their
# program, or words that the document must contain about what they need.
RUN_ELSEWHERE = {
    "scripts/test.sh": ".ci/run",
    "scripts/setup.sh": ".ci/run",
    "scripts/check.sh": ".ci/run",
    "cmake --preset": ".ci/run",
    "cmake --build --preset": "scripts/test.sh",
    ".ci/run": ".github/workflows/ci.yml",
    "scripts/gpu_check.sh": "tests/system/gpu_check_test.py",
    "scripts/gpu_results.py": "tests/system/gpu_check_test.py",
    "scripts/gpu_pack.sh": "CUDA toolkit",
    "scripts/check_cuda_architectures.py": "CUDA toolkit",
    "report --follow": "tests/system/follow_test.cpp",
    "muograph report": "tests/system/report_test.cpp",
    "muograph compare": "tests/system/sweep_test.cpp",
    "muograph timeline": "tests/system/timeline_test.cpp",
    "muograph sweep --resume": "tests/system/sweep_test.cpp",
    "--transfer-to": "tests/system/sweep_test.cpp",
    "--process-per-device": "tests/system/processes_test.cpp",
    "scripts/look_at_report.py": "Chromium",
    "scripts/look_at_live_report.py": "Chromium",
    "scripts/fetch_plotly.sh": "tests/system/setup_script_test.cpp",
    "scripts/fetch_cuda.sh": "tests/system/train_script_test.cpp",
    "scripts/fetch_fineweb.sh": "tests/system/fetch_fineweb_test.py",
    "scripts/try_in_chroot.sh": "chroot",
    "scripts/try_aarch64.sh": "chroot",
    "scripts/try_install.sh": "scripts/try_in_chroot.sh",
    "scripts/make_packages.sh": ".ci/full",
    ".venv/bin/": "scripts/try_packages.sh",
    "scripts/performance_tables.py": "scripts/check.sh",
    "scripts/convert_nanochat.py": "tests/system/convert_nanochat_test.py",
    "scripts/convert_nanogpt_data.py": "tests/system/convert_nanogpt_data_test.py",
    "scripts/check_hf_export.py": "tests/system/hugging_face_files_test.cpp",
    "scripts/golden/make_nanochat_golden.py": "PyTorch",
    "nsys ": "have not been run",
    "cmake --install": "scripts/try_install.sh",
    "cpack ": "scripts/try_install.sh",
    "dpkg ": "scripts/try_install.sh",
    "pip install tensorboard": "tests/system/tensorboard_test.cpp",
    "pip install wandb": "tests/system/watch_wandb_test.cpp",
    "pip ": "scripts/try_install.sh",
    "scripts/watch_wandb.py": "tests/system/watch_wandb_test.cpp",
    "scripts/check_tensorboard.py": "tests/system/tensorboard_test.cpp",
    "scripts/sweep_with_optuna.py": "tests/system/ask_tell_test.py",
    "tensorboard --logdir": "scripts/check_tensorboard.py",
}
STARTS = re.compile(r"(\w+=\S+ )*(python3? )?(muograph |ctest |build/(release|dev)/\w+( |$)|\w+_bench |"
                    + "|".join(map(re.escape, RUN_ELSEWHERE)) + ")")
# Replacements of words that stand for a user's own names.
PLACEHOLDERS = {"COMMAND": "doctor", "FILE": "configs/d4-cpu.toml", "RUN": "d4", "SHARD": "shards/val.bin",
                "NAME": "Golden", "...": "--seed=1"}
TINY = {"--n-layer": "1", "--n-embd": "64", "--n-head": "1", "--max-seq-len": "32", "--device-batch-size": "1",
        "--total-batch-size": "auto", "--target-batch-size": "64", "--eval-tokens": "64", "--num-iterations": "2", "--steps": "1", "--data": "my.txt"}


def commands(document):
    """Yields the commands in code blocks and spans, without comments and with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", document.read_text())
    blocks = re.compile(r"^```\n(.*?)^```|((?:^    .*\n)+)", re.M | re.S)
    for match in blocks.finditer(text):
        for line in (match.group(1) or match.group(2)).splitlines():
            yield from re.sub(r" +# .*", "", line).strip().split(" && ")
    for match in re.finditer(r"`([^`]+)`", blocks.sub("", text)):
        yield " ".join(match.group(1).split())


def link_programs(folder):
    """Links all programs on PATH into the folder, except those that only a developer's machine has."""
    development = re.search(r"--dev\) packages\+=\((.*?)\)", (ROOT / "scripts/setup.sh").read_text()).group(1).split()
    listed = subprocess.run(["dpkg-query", "-L", *(set(development) - {"python3", "git"})], text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()
    hidden = {os.path.realpath(path) for path in listed if "/bin/" in path}
    for place in os.environ["PATH"].split(os.pathsep):
        for program in pathlib.Path(place).glob("*"):
            if not (folder / program.name).is_symlink() and os.path.realpath(program) not in hidden:
                (folder / program.name).symlink_to(program)


class Sandbox:
    """A folder that is both a clone with its builds and a user's folder, on a machine without developer tools."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        (folder / "bin").mkdir()
        link_programs(folder / "bin")
        (folder / "build").mkdir()
        for name in ("release", "dev"):
            (folder / "build" / name).symlink_to(build)
        for name in ("configs", "scripts", "docs"):
            (folder / name).symlink_to(ROOT / name)
        text = b"".join((ROOT / name).read_bytes() for name in ("README.md", "LICENSE"))
        (folder / "data").mkdir()
        for name in ("my.txt", "tinyshakespeare.txt", "data/tinyshakespeare.txt"):
            (folder / name).write_bytes(text)
        (folder / "corpus").mkdir()
        (folder / "corpus" / "a.txt").write_bytes(text)
        golden = ROOT / "tests/golden/tokenizer"
        for name, source in (("tokenizer.json", "tokenizer.json"), ("my.tiktoken", "ranks.tiktoken"),
                             ("tokenizer.model", "../sentencepiece/llama.model")):
            (folder / name).write_bytes((golden / source).read_bytes())
        examples = ROOT / "tests/golden/core"
        (folder / "eval_bundle").symlink_to(examples / "bundle")
        (folder / "hellaswag_val.jsonl").symlink_to(examples / "hellaswag.jsonl")
        (folder / "d12").symlink_to("first")
        (folder / "ids").write_text("72 101")
        (folder / "shards").mkdir()
        (folder / "fineweb10B").mkdir()
        for name in ("shards/train", "shards/val", "fineweb10B/fineweb_train_000001", "fineweb10B/fineweb_val_000000"):
            header = struct.pack("<256i", 20240520, 1, len(text), *[0] * 253)  # version 1, number of tokens; then ids
            (folder / f"{name}.bin").write_bytes(header + struct.pack(f"<{len(text)}H", *text))
        self.run(tiny(["muograph", "train", "--out", "first"]))
        self.run(["muograph", "checkpoint", "export", "--checkpoint", "first", "--out", "exported_first"])
        for file in (folder / "exported_first").iterdir():
            file.rename(folder / re.sub(r"_\d+", "_000123", file.name))

    def run(self, words):
        variables = dict(os.environ, PATH=f"{self.build}:{self.folder / 'bin'}")
        words = [str(self.build / "muograph") if word == "muograph" else word for word in words]
        while "=" in words[0]:
            name, value = words.pop(0).split("=")
            variables[name] = value.replace("$PWD", str(self.folder))
        done = subprocess.run(words, cwd=self.folder, env=variables, stdin=subprocess.DEVNULL, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-600:]}")
        return done.stdout


def tiny(words):
    """The command of a training run or a benchmark with the sizes of TINY."""
    sizes = dict(TINY)
    del sizes["--data" if "bench" in words else "--steps"]
    if "--resume" in words and "--data" not in words:  # the resumed run already has two steps
        sizes = {"--num-iterations": "3"}
    elif "--data" in words:
        sizes["--data"] = words[words.index("--data") + 1]
    if "--min-steps" in words:
        sizes["--min-steps"] = "1"
    kept = [word for before, word in zip(["", *words], words) if word not in sizes and before not in sizes]
    return [*kept, *(part for option in sizes.items() for part in option)]


def runs_elsewhere(command, document):
    """True if the command is in RUN_ELSEWHERE. Raises unless that file runs it, or the document states the need."""
    for start, place in RUN_ELSEWHERE.items():
        if start in command:
            path = ROOT / place
            said, wanted = (path, start.strip().split("/")[-1]) if path.is_file() else (document, place)
            if wanted not in " ".join(said.read_text().split()):
                raise RuntimeError(f"not run here, and {said.relative_to(ROOT)} does not have '{wanted}'")
            return True
    return False


def try_command(sandbox, command):
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    if words[0] == "scripts/train.sh":  # tests/system/train_script_test.cpp tests the script's own part
        words[:1] = ["muograph", "train", *([] if "--config" in words else ["--config", "configs/quick.toml"])]
    if words[0] == "ctest":
        if "Total Tests: 0" in sandbox.run(["ctest", "--test-dir", str(sandbox.build), *words[3:], "--show-only"]):
            raise RuntimeError("no such test")
    elif any(word.endswith("_bench") for word in words):
        if "/" not in sandbox.run([*words, "--benchmark_list_tests"]):
            raise RuntimeError("no benchmark has such a name")
    elif words[1:2] == ["tokenizer"]:
        sandbox.run(words)
    elif "train" in words or "sweep" in words[:-1] or "bench" in words[:-1]:
        sandbox.run(tiny(words))
    elif words[1:] not in ([], ["bench"], ["sweep"], ["tokenize"]):
        sandbox.run(words)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    documents = [file for pattern in ("*.md", "*/*.md", "*/*/*.md") for file in sorted(ROOT.glob(pattern))
                 if file.relative_to(ROOT).parts[0] != "build"]
    tried, failed = set(), 0
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(pathlib.Path(folder), build)
        for document in documents:
            for command in filter(STARTS.match, commands(document)):
                command = re.sub(r"build/(release|dev)/muograph", "muograph", command)
                try:
                    if not runs_elsewhere(command, document) and command not in tried:
                        try_command(sandbox, command)
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{document.relative_to(ROOT)}: {command}\n  {error}")
                tried.add(command)
    print(f"{len(tried)} commands, {failed} failed")
    sys.exit(failed > 0 or len(tried) < 40)


main()
