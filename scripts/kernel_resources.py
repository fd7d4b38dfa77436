#!/usr/bin/env python3
"""Reads the GPU resources of each CUDA kernel from compiled code and maintains tests/stand_ins/kernel_resources.inc,
the table by which the SIMT tier limits launches.
  scripts/kernel_resources.py LIBRARY
compares libmuograph_cuda.so with the table; exit code 77: nothing to compare.
scripts/check_cuda_architectures.py --write-table writes the table."""
import collections
import pathlib
import re
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/stand_ins/kernel_resources.inc"
ARCHITECTURES = ("80", "90a", "100a", "120")
WRITE = "scripts/check_cuda_architectures.py --write-table"
SKIPPED = 77

# The maximum number of threads per block (__launch_bounds__; 0: unspecified) and the bytes of parameters do not depend
# on the architecture; registers per thread and static bytes of shared memory do.
Kernel = collections.namedtuple("Kernel", "threads parameters registers shared")

EM_CUDA, SHT_SYMTAB = 190, 2
# Attributes of .nv.info, named as in `cuobjdump -elf`.
REGISTER_COUNT, MOST_THREADS, PARAMETER_BYTES = 0x2F, 0x05, 0x19
# From sm_90 on, a block's shared memory begins with bytes reserved by the system, which ptxas does not report.
SYSTEM_SHARED = 1024


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def nvcc_version(nvcc):
    output = subprocess.run([nvcc, "--version"], text=True, capture_output=True, check=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", output)[1]


def demangled(names):
    """Demangled names as with g++: nvcc adds file names and hashes to unnamed namespaces."""
    def unnamed(name):
        while found := re.search(r"(\d+)_GLOBAL__N__", name):
            end = found.start(1) + len(found[1]) + int(found[1])
            name = f"{name[:found.start()]}12_GLOBAL__N_1{name[end:]}"
        return name
    run = subprocess.run(["c++filt"], input="\n".join(map(unnamed, names)), text=True,
                         capture_output=True, check=True)
    return dict(zip(names, run.stdout.splitlines()))


def sections(image):
    """Yields (name, type, data) of each section; for a section without data, yields its size instead."""
    table, = struct.unpack_from("<Q", image, 40)
    entry, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry) for i in range(count)]
    for name, kind, _, _, offset, size, *_ in headers:
        start = headers[names][4] + name
        text = image[start:image.index(b"\0", start)].decode()
        yield text, kind, size if kind == 8 else image[offset:offset + size]


def attributes(data):
    """Yields (attribute, value) of an .nv.info section: bytes, or a number if there is only room for one."""
    at = 0
    while at < len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:  # the number is the length of the value
            yield attribute, data[at:at + value]
            at += value
        else:
            yield attribute, value


def kernels_of(image):
    """The architecture of a cubin and its kernels by mangled name."""
    architecture = struct.unpack_from("<I", image, 48)[0] >> 8 & 0xFF
    found = list(sections(image))
    data = {name: content for name, _, content in found}
    symbols = [struct.unpack_from("<I", data[".symtab"], at)[0]
               for at in range(0, len(data[".symtab"]), 24)]
    registers = {}
    for attribute, value in attributes(data.get(".nv.info", b"")):
        if attribute == REGISTER_COUNT:
            symbol, count = struct.unpack("<II", value)
            start = symbols[symbol]
            registers[data[".strtab"][start:data[".strtab"].index(b"\0", start)].decode()] = count
    kernels = {}
    for section, _, content in found:
        if not section.startswith(".nv.info."):
            continue
        name = section.removeprefix(".nv.info.")
        own = dict(attributes(content))
        x, y, z = struct.unpack("<III", own[MOST_THREADS]) if MOST_THREADS in own else (0, 0, 0)
        shared = data.get(f".nv.shared.{name}", 0)
        kernels[name] = Kernel(x * y * z, own.get(PARAMETER_BYTES, 0), registers[name],
                               max(0, shared - (SYSTEM_SHARED if architecture >= 90 else 0)))
    return architecture, kernels


def cubins(data):
    """The uncompressed images of GPU code in a file."""
    at = -1
    while (at := data.find(b"\x7fELF", at + 1)) >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            yield data[at:]


def merged(kernels):
    """One entry per name: kernels of two files may have the same name, and then the larger values count."""
    out = {}
    for name, kernel in kernels:
        other = out.get(name, kernel)
        least = min((k.threads for k in (kernel, other) if k.threads), default=0)
        out[name] = Kernel(least, max(kernel.parameters, other.parameters),
                           max(kernel.registers, other.registers),
                           max(kernel.shared, other.shared))
    return out


def read_table():
    """Returns the version of nvcc, and {architecture: {kernel: Kernel}}."""
    text = TABLE.read_text()
    table = {architecture: {} for architecture in ARCHITECTURES}
    for line in re.findall(r'^\{"(.*)", (.*)\},$', text, re.M):
        numbers = [int(x) for x in re.findall(r"\d+", line[1])]
        for i, architecture in enumerate(ARCHITECTURES):
            table[architecture][line[0]] = Kernel(*numbers[:2], *numbers[2 + 2 * i:4 + 2 * i])
    return re.search(r"nvcc (\d+\.\d+\.\d+)", text)[1], table


def write_table(version, table):
    lines = [f"// Written by {WRITE}, with nvcc {version}.",
             "// Kernel, threads of a block at most (0: not said), bytes of parameters (0: they differ, as one is",
             "// aligned to more than their beginning); then registers and static bytes of shared memory on",
             f"// sm_{', sm_'.join(ARCHITECTURES)}."]
    for name in sorted(table[ARCHITECTURES[0]]):
        per = [table[architecture][name] for architecture in ARCHITECTURES]
        parameters = per[0].parameters if len({k.parameters for k in per}) == 1 else 0
        lines.append(f'{{"{name}", {per[0].threads}, {parameters}, {{'
                     + ", ".join(f"{{{k.registers}, {k.shared}}}" for k in per) + "}},")
    TABLE.write_text("\n".join(lines) + "\n")


def differences(want, have):
    for name in sorted(want.keys() | have.keys()):
        one, other = want.get(name), have.get(name)
        if one and other and one.parameters == 0:
            other = other._replace(parameters=0)
        if one != other:
            yield f"{name}: table {want.get(name)}, compiled {have.get(name)}"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    library = pathlib.Path(sys.argv[1])
    nvcc = find_nvcc()
    if nvcc is None or not library.is_file():
        print("skipped: no CUDA toolkit or no library, so no compiled kernels to compare")
        return SKIPPED
    version, table = read_table()
    if nvcc_version(nvcc) != version:
        print(f"skipped: the table is for nvcc {version}, and other versions may differ")
        return SKIPPED
    names = {architecture.rstrip("a"): architecture for architecture in ARCHITECTURES}
    found = collections.defaultdict(list)
    images = list(cubins(library.read_bytes()))
    if not images:
        print(f"{library} has no GPU code, or only compressed code: build it with -Xfatbin -no-compress")
        return 1
    for image in images:
        architecture, kernels = kernels_of(image)
        if name := names.get(str(architecture)):
            plain = demangled(list(kernels))
            found[name] += [(plain[mangled], kernel) for mangled, kernel in kernels.items()
                            if "7cutlass" not in mangled]  # the SIMT tier does not run these
    if not found:
        print(f"skipped: {library.name} supports none of sm_{', sm_'.join(ARCHITECTURES)}")
        return SKIPPED
    wrong = False
    for architecture, kernels in found.items():
        have = merged(kernels)
        for line in differences(table[architecture], have):
            print(f"sm_{architecture}: {line}")
            wrong = True
        print(f"sm_{architecture}: {len(have)} kernels compared")
    if wrong:
        print(f"{TABLE.relative_to(ROOT)} is out of date: run {WRITE}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
