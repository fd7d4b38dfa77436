#!/usr/bin/env python3
"""Compiles every CUDA source for each GPU architecture that muograph supports; fails on a warning, on a
kernel that spills registers, and on one whose products of warpgroups wait for each other.
  scripts/check_cuda_architectures.py [--registers] [ARCHITECTURE ...]    default: 80 90a 100a 120
  scripts/check_cuda_architectures.py --write-table
--registers: also prints registers and shared memory of every kernel.
--write-table: writes what every kernel takes into tests/stand_ins/kernel_resources.inc."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import kernel_resources

ROOT = kernel_resources.ROOT
# GPU code alone: every build compiles the host's side of these files, with the same warnings.
HOST_COMPILER = shutil.which("g++-12") or "g++"
FLAGS = ["-std=c++20", "-O3", "-ccbin", HOST_COMPILER, "-Werror", "all-warnings",
         "--expt-relaxed-constexpr", "-Xptxas", "-v,-warn-spills", "-Xcompiler", "-Wall,-Wextra",
         "-Isrc", "-I.", "-cubin"]
# Sources of one architecture alone, with CUTLASS's headers, whose templates warn.
HOPPER = "src/kernels/cuda/sm90/"
CUTLASS = ROOT / "build/third_party/cutlass/include"
HOPPER_FLAGS = ["-w", "-DNDEBUG", "-isystem", str(CUTLASS)]
KERNEL = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill "
                    r"stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", re.S)


def compile_one(nvcc, source, architecture):
    """The source, its output if it failed, and (kernel, spilled bytes, ptxas's report, resources) of
    each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder) / "cubin"
        more = HOPPER_FLAGS if source.startswith(HOPPER) else ["--fmad=false"]
        run = subprocess.run([nvcc, *FLAGS, *more, "-o", cubin, "-gencode",
                              f"arch=compute_{architecture},code=sm_{architecture}", source],
                             cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             check=False)
        serialized = [line for line in run.stdout.splitlines() if "instructions are serialized" in line]
        if run.returncode or serialized:
            return source, "\n".join(serialized) or run.stdout, []
        _, resources = kernel_resources.kernels_of(cubin.read_bytes())
    names = kernel_resources.demangled(list(resources))
    kernels = []
    for name, _, stores, loads, used, rest in KERNEL.findall(run.stdout):
        shared = re.search(r"(\d+) bytes smem", rest)
        kernel = resources[name]
        if (kernel.registers, kernel.shared) != (int(used), int(shared[1]) if shared else 0):
            return source, f"ptxas reports {used} registers{rest}, its code says {kernel}\n", []
        kernels.append((names[name], int(stores) + int(loads), f"{used} registers{rest}", kernel))
    return source, "", kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registers", action="store_true")
    parser.add_argument("--write-table", action="store_true")
    parser.add_argument("architecture", nargs="*", default=kernel_resources.ARCHITECTURES)
    arguments = parser.parse_args()
    if arguments.write_table and tuple(arguments.architecture) != kernel_resources.ARCHITECTURES:
        parser.error("the table is of all architectures: name none")
    nvcc = kernel_resources.find_nvcc()
    if nvcc is None:
        print("check_cuda_architectures.py: no nvcc on PATH; install the CUDA toolkit 13.0",
              file=sys.stderr)
        return 2
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.cu"))
    if not CUTLASS.is_dir():
        print(f"skipped: {HOPPER}: no headers of CUTLASS (scripts/setup.sh fetches them)")
        sources = [source for source in sources if not source.startswith(HOPPER)]
    failed = False
    table = {}
    for architecture in arguments.architecture:
        compiled = []
        here = [s for s in sources if architecture == "90a" or not s.startswith(HOPPER)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for source, output, kernels in pool.map(
                    lambda source, a=architecture: compile_one(nvcc, source, a), here):
                compiled += [(kernel[0], kernel[3]) for kernel in kernels
                             if not source.startswith(HOPPER)]
                for name, spilled, report, _ in kernels:
                    if spilled:
                        print(f"sm_{architecture} {source}: {name} spills {spilled} bytes")
                        failed = True
                    elif arguments.registers:
                        print(f"sm_{architecture} {source}: {report}: {name}")
                if output:
                    print(f"sm_{architecture} {source}:\n{output}")
                    failed = True
        table[architecture] = kernel_resources.merged(compiled)
        print(f"sm_{architecture}: {len(here)} files, {len(compiled)} kernels"
              f"{'' if failed else ', no warning, no spill'}", flush=True)
    if arguments.write_table and not failed:
        kernel_resources.write_table(kernel_resources.nvcc_version(nvcc), table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
