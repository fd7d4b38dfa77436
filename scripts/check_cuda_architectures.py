#!/usr/bin/env python3
"""Compiles every CUDA source for each supported GPU architecture. Fails on a warning, on a kernel that spills
registers, on one whose warpgroup matrix products are serialized, and, if nvdisasm is available (scripts/fetch_cuda.sh
disassembler), on machine code that lacks an instruction which PROMISES lists for its kernel.
  scripts/check_cuda_architectures.py [--registers] [ARCHITECTURE ...]    default: 80 90a 100a 120
  scripts/check_cuda_architectures.py --write-table [--only SOURCE ...]
--registers: also prints registers, shared memory and counted instructions of every kernel.
--write-table: writes the resources of every kernel to tests/stand_ins/kernel_resources.inc.
--only: compiles only these sources; all other rows of the table stay, even those of removed kernels."""
import argparse
import collections
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
# Compiles only the GPU code: every build compiles the host side of these files, with the same warnings.
HOST_COMPILER = shutil.which("g++-12") or "g++"
FLAGS = ["-std=c++20", "-O3", "-ccbin", HOST_COMPILER, "-Werror", "all-warnings",
         "--expt-relaxed-constexpr", "-Xptxas", "-v,-warn-spills", "-Xcompiler", "-Wall,-Wextra",
         "-Isrc", "-I.", "-cubin"]
# Sources for a single architecture that use CUTLASS's headers, whose templates cause warnings.
HOPPER = "src/kernels/cuda/sm90/"
CUTLASS = ROOT / "build/third_party/cutlass/include"
HOPPER_FLAGS = ["-w", "-DNDEBUG", "-isystem", str(CUTLASS)]
KERNEL = re.compile(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill "
                    r"stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", re.S)
NVDISASM = ROOT / "build/third_party/nvdisasm/nvdisasm"
# Instructions that kernels whose name matches (mangled, if it is CUTLASS's) must contain, and on which architecture (""
# for all).
PROMISES = [
    (re.compile(r"kernel<(float, 4|muo::BF16, 8)\b|elementwise_kernel<[48],"), "16 bytes", ""),
    (re.compile(r"::flash_"), "HMMA", ""),
    (re.compile(r"::warpgroup_|7cutlass"), "HGMMA", "90a"),
    (re.compile(r"::warpgroup_|7cutlass"), "TMA", "90a"),
]
COUNTED = {"16 bytes": re.compile(r"(LD|ST)G.*\.128"), "HMMA": re.compile("HMMA"),
           "HGMMA": re.compile("HGMMA"), "TMA": re.compile("UTMA(LDG|STG|REDG)"),
           "loads of local memory": re.compile("LDL")}
REDUCES_ANGLES = re.compile("rotary_table_kernel|advance_step_kernel")  # argument reduction of sin and cos uses local memory
SECTION = re.compile(r"\t\.section\t\.text\.(\w+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def count_instructions(cubin):
    """Returns {mangled kernel: {name in COUNTED: number of instructions}}; empty without nvdisasm."""
    counts = collections.defaultdict(collections.Counter)
    if not NVDISASM.is_file():
        return counts
    code = subprocess.run([NVDISASM, "-c", cubin], text=True, capture_output=True, check=True).stdout
    for line in code.splitlines():
        if section := SECTION.match(line):
            kernel = counts[section[1]]
        elif found := INSTRUCTION.match(line):
            kernel.update(name for name, pattern in COUNTED.items() if pattern.match(found[1]))
    return counts


def broken_promises(name, mangled, counts, architecture):
    full = f"{name} {mangled}"
    for pattern, instruction, only in PROMISES:
        if pattern.search(full) and only in ("", architecture) and counts[instruction] == 0:
            yield f"has no instruction of {instruction}"
    if counts["loads of local memory"] and not REDUCES_ANGLES.search(name):
        yield f"loads local memory {counts['loads of local memory']} times"


def compile_one(nvcc, source, architecture):
    """Returns the source, its output if it failed, and for each kernel (name, problems, report, resources)."""
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
        counts = count_instructions(cubin)
    names = kernel_resources.demangled(list(resources))
    kernels = []
    for name, _, stores, loads, used, rest in KERNEL.findall(run.stdout):
        shared = re.search(r"(\d+) bytes smem", rest)
        kernel = resources[name]
        if (kernel.registers, kernel.shared) != (int(used), int(shared[1]) if shared else 0):
            return source, f"ptxas reports {used} registers{rest}, but its code says {kernel}\n", []
        wrong = [f"spills {int(stores) + int(loads)} bytes"] if int(stores) + int(loads) else []
        if counts:
            wrong += broken_promises(names[name], name, counts[name], architecture)
        report = "".join(f", {n} {what}" for what, n in counts[name].items())
        kernels.append((names[name], wrong, f"{used} registers{rest}{report}", kernel))
    return source, "", kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registers", action="store_true")
    parser.add_argument("--write-table", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="SOURCE")
    parser.add_argument("architecture", nargs="*", default=kernel_resources.ARCHITECTURES)
    arguments = parser.parse_args()
    if arguments.write_table and tuple(arguments.architecture) != kernel_resources.ARCHITECTURES:
        parser.error("the table covers all architectures: name none")
    nvcc = kernel_resources.find_nvcc()
    if nvcc is None:
        print("check_cuda_architectures.py: no nvcc on PATH; install the CUDA toolkit 13.0",
              file=sys.stderr)
        return 2
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.cu"))
    if not CUTLASS.is_dir():
        print(f"skipped: {HOPPER}: no headers of CUTLASS (scripts/setup.sh fetches them)")
        sources = [source for source in sources if not source.startswith(HOPPER)]
    if not NVDISASM.is_file():
        print("skipped: counts of instructions: no nvdisasm (scripts/fetch_cuda.sh disassembler)")
    if arguments.only:
        if unknown := set(arguments.only) - set(sources):
            parser.error(f"--only: no CUDA source: {' '.join(sorted(unknown))}")
        sources = arguments.only
    failed = False
    table = kernel_resources.read_table()[1] if arguments.only else collections.defaultdict(dict)
    for architecture in arguments.architecture:
        compiled = []
        here = [s for s in sources if architecture == "90a" or not s.startswith(HOPPER)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for source, output, kernels in pool.map(
                    lambda source, a=architecture: compile_one(nvcc, source, a), here):
                compiled += [(kernel[0], kernel[3]) for kernel in kernels
                             if not source.startswith(HOPPER)]
                for name, wrong, report, _ in kernels:
                    if wrong:
                        print(f"sm_{architecture} {source}: {name} {', '.join(wrong)}")
                        failed = True
                    elif arguments.registers:
                        print(f"sm_{architecture} {source}: {report}: {name}")
                if output:
                    print(f"sm_{architecture} {source}:\n{output}")
                    failed = True
        table[architecture] |= kernel_resources.merged(compiled)
        print(f"sm_{architecture}: {len(here)} files, {len(compiled)} kernels"
              f"{'' if failed else ', no warning, no spill'}", flush=True)
    if arguments.write_table and not failed:
        kernel_resources.write_table(kernel_resources.nvcc_version(nvcc), table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
