#!/usr/bin/env python3
"""Converts nanoGPT's train.bin and val.bin (uint16 ids without a header) to token shards.
  scripts/convert_nanogpt_data.py [--separator 50256] FILE.bin... OUT
In nanoGPT's files the separator ends each document; in shards it begins each document, so it is moved from the end to
the start. The ids of a file that does not end with the separator, such as a file of characters, or that begins with it,
are copied unchanged."""
import argparse
import array
import pathlib
import sys

SHARD_TOKENS = 100_000_000
MAGIC, WIDE, VERSION = 20240520, 20240801, 1


def fail(what):
    sys.exit(f"convert_nanogpt_data.py: {what}")


def check(file):
    size = file.stat().st_size
    if size % 2 or size == 0:
        fail(f"{file}: {size} bytes are not uint16 ids")
    with file.open("rb") as ids:
        if int.from_bytes(ids.read(4), "little") in (MAGIC, WIDE):
            fail(f"{file}: already a token shard, which training can read")


def convert(file, out, separator):
    count, shard = file.stat().st_size // 2, 0
    with file.open("rb") as ids:
        first = ids.read(2)
        ids.seek(-2, 2)
        begin = ids.read(2) if first != separator else b""
        begin = begin if begin == separator else b""
        ids.seek(0)
        for at in range(0, count, SHARD_TOKENS):
            tokens = min(SHARD_TOKENS, count - at)
            header = array.array("i", [MAGIC, VERSION, tokens] + [0] * 253)
            with (out / f"{file.stem}_{shard:06}.bin").open("xb") as to:
                to.write(header.tobytes() + begin + ids.read(2 * tokens - len(begin)))
            begin, shard = b"", shard + 1
    print(f"{file}: {count} tokens in {shard} shard{'s' * (shard > 1)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--separator", type=int, default=50256)
    arguments = parser.parse_args()
    if not 0 <= arguments.separator < 1 << 16:
        fail(f"--separator {arguments.separator}: not from 0 to 65535")
    for file in arguments.files:
        check(file)
    if len({file.stem for file in arguments.files}) < len(arguments.files):
        fail("two files with the same name would give the same shard: convert them to different folders")
    if arguments.out.exists() and not (arguments.out.is_dir() and not any(arguments.out.iterdir())):
        fail(f"{arguments.out}: exists already: the last argument is a folder to create")
    arguments.out.mkdir(exist_ok=True)
    for file in arguments.files:
        convert(file, arguments.out, arguments.separator.to_bytes(2, "little"))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"convert_nanogpt_data.py: {error}")
