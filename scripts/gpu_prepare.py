#!/usr/bin/env python3
"""Writes what scripts/gpu_check.py needs besides programs, to the folder that scripts/gpu_pack.sh packs:
  scripts/gpu_prepare.py BUILD PACK        BUILD has the programs, PACK has text.txt
PACK/scripts, PACK/configs and PACK/tests: files of the checkout that stages read, under the same paths.
PACK/tests.json: test suites, each of which runs in its own process. PACK/reference_DTYPE.jsonl: the first steps on this
machine's CPU of the text run of scripts/gpu_stages.py, as the reference for the same run on a GPU."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import gpu_stages

POLL_SECONDS = 0.1
ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKOUT = ("scripts/gpu_*.py", "scripts/gpu_check.sh", "scripts/torch_*.py", "scripts/peer_nanochat_gpu.py",
            "configs/quick.toml", "tests/golden/*.safetensors", "tests/golden/core/**/*")


def train_lines(path):
    text = path.read_text() if path.is_file() else ""
    return [line for line in text.splitlines(keepends=True)
            if '"kind":"train"' in line.replace(" ", "") and line.endswith("\n")]


def reference(muograph, pack, dtype):
    with tempfile.TemporaryDirectory() as folder:
        out, log = pathlib.Path(folder) / "run", pathlib.Path(folder) / "log"
        command = [muograph, "train", *gpu_stages.text_run(pack, quiet=True), "--backend", "host",
                   "--devices", 1, "--dtype", dtype, "--out", out]
        with open(log, "wb") as file:
            process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)
            while (len(lines := train_lines(out / "metrics.jsonl")) < gpu_stages.REFERENCE_STEPS
                   and process.poll() is None):
                time.sleep(POLL_SECONDS)
            process.kill()
            process.wait()
        if len(lines) < gpu_stages.REFERENCE_STEPS:
            sys.exit(f"gpu_prepare.py: the run in {dtype} left {len(lines)} steps:\n"
                     + log.read_text(errors="replace")[-2000:])
    (pack / f"reference_{dtype}.jsonl").write_text("".join(lines[:gpu_stages.REFERENCE_STEPS]))


def suites(build, program):
    listed = subprocess.run([build / program, "--gtest_list_tests"], text=True, check=True,
                            capture_output=True).stdout
    return [line.removesuffix(".") for line in listed.splitlines()
            if line.endswith(".") and not line.startswith(" ")]


def main():
    build, pack = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    tests = {"kernels_test": suites(build, "kernels_test"),
             "contract_test": [suite for suite in suites(build, "contract_test")
                               if suite.startswith("Backends/")]}
    for pattern in CHECKOUT:
        for path in filter(pathlib.Path.is_file, ROOT.glob(pattern)):
            copy = pack / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    (pack / "tests.json").write_text(json.dumps(tests))
    for dtype in ("fp32", "bf16"):
        reference(build / "muograph", pack, dtype)
        print(f"{gpu_stages.REFERENCE_STEPS} steps in {dtype} on the CPU: reference_{dtype}.jsonl")


if __name__ == "__main__":
    main()
