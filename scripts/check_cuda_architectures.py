#!/usr/bin/env python3
"""Compiles every CUDA source for each GPU architecture that muograph supports; fails on a warning and
on a kernel that spills registers.
  scripts/check_cuda_architectures.py [--registers] [ARCHITECTURE ...]    default: 80 90a 100a 120
--registers: also prints registers and shared memory of every kernel."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-O3", "-ccbin", "g++-12", "-Werror", "all-warnings",
         "--expt-relaxed-constexpr", "-Xptxas", "-v,-warn-spills", "-Xcompiler", "-Wall,-Wextra",
         "-Isrc", "-I.", "-c", "-o", "/dev/null"]
KERNEL = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill "
                    r"stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", re.S)


def compile_one(nvcc, source, architecture):
    """The source, its output if it failed, and (kernel, spilled bytes, resources) of each kernel."""
    command = [nvcc, *FLAGS, "-gencode", f"arch=compute_{architecture},code=sm_{architecture}",
               source]
    run = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False)
    kernels = [(name, int(stores) + int(loads), f"{used} registers{rest}")
               for name, _, stores, loads, used, rest in KERNEL.findall(run.stdout)]
    return source, run.stdout if run.returncode else "", kernels


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True,
                         check=True)
    return run.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registers", action="store_true")
    parser.add_argument("architecture", nargs="*", default=["80", "90a", "100a", "120"])
    arguments = parser.parse_args()
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("check_cuda_architectures.py: no nvcc on PATH; install the CUDA toolkit 13.0",
              file=sys.stderr)
        return 2
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.cu"))
    failed = False
    for architecture in arguments.architecture:
        count = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for source, output, kernels in pool.map(
                    lambda source, a=architecture: compile_one(nvcc, source, a), sources):
                count += len(kernels)
                names = demangled([kernel[0] for kernel in kernels])
                for name, (_, spilled, resources) in zip(names, kernels):
                    if spilled:
                        print(f"sm_{architecture} {source}: {name} spills {spilled} bytes")
                        failed = True
                    elif arguments.registers:
                        print(f"sm_{architecture} {source}: {resources}: {name}")
                if output:
                    print(f"sm_{architecture} {source}:\n{output}")
                    failed = True
        print(f"sm_{architecture}: {len(sources)} files, {count} kernels"
              f"{'' if failed else ', no warning, no spill'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
