#!/usr/bin/env python3
"""Copies a CUDA library without the machine code for other GPUs, so that the copy compresses well.
  scripts/trim_gpu_code.py LIBRARY COPY ARCHITECTURE...      as in CMake: 90a-real
Nothing moves in the copy: code that its GPU never runs becomes zeros. For each architecture the newest code that runs
there is kept, but no PTX, and no relocatable code, which is for linking."""
import pathlib
import re
import struct
import sys

FATBIN = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
MAGIC = 0xBA55ED50
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, version, size of this header, size of the code, 4 others, architecture
MACHINE_CODE = 2


def sections(library):
    """Offsets and sizes in a 64-bit ELF file, by name."""
    table, = struct.unpack_from("<Q", library, 40)
    size, count, names = struct.unpack_from("<HHH", library, 58)
    headers = [struct.unpack_from("<IIQQQQ", library, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        yield library[start:library.index(0, start)].decode(), offset, length


def entries(library, offset, length):
    """Yields kind, architecture, offset and size of each piece of code, by the fat binary that holds it."""
    at, end = offset, offset + length
    while at < end:
        magic, _, header, size = FATBIN.unpack_from(library, at)
        if magic != MAGIC:  # padding
            at += 8
            continue
        at += header
        box, stop = [], at + size
        while at < stop:
            kind, _, header, size, *_, architecture = ENTRY.unpack_from(library, at)
            if header < ENTRY.size:
                sys.exit(f"trim_gpu_code.py: not a fat binary at byte {at}")
            box.append((kind, architecture, at + header, size))
            at += header + size
        yield box


def main(source, target, *architectures):
    wanted = [int(re.match(r"\d+", name)[0]) for name in architectures]
    library = bytearray(pathlib.Path(source).read_bytes())
    kept = 0
    for name, offset, length in list(sections(library)):
        if name not in (".nv_fatbin", "__nv_relfatbin"):
            continue
        for box in entries(library, offset, length):
            present = {architecture for kind, architecture, _, _ in box if kind == MACHINE_CODE}
            runs = {max((a for a in present if a // 10 == gpu // 10 and a <= gpu), default=None) for gpu in wanted}
            for kind, architecture, at, size in box:
                if name == ".nv_fatbin" and kind == MACHINE_CODE and architecture in runs:
                    kept += size
                else:
                    library[at:at + size] = bytes(size)
    if not kept:
        sys.exit(f"trim_gpu_code.py: {source} has no code for {', '.join(architectures)}")
    pathlib.Path(target).write_bytes(library)
    print(f"{target}: {kept >> 20} MiB of code for {', '.join(architectures)}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
