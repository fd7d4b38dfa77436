#!/usr/bin/env python3
"""Makes token shards of nanoGPT's train.bin and val.bin, which are uint16 ids without a header.
  scripts/convert_nanogpt_data.py [--separator 50256] FILE.bin... OUT
The separator ends each document there and begins it in shards: it moves from the end to the start. Of a file that does not
end with it, as one of characters, the ids are copied as they are."""
import argparse
import array
import pathlib
import sys

SHARD_TOKENS = 100_000_000
MAGIC, WIDE, VERSION = 20240520, 20240801, 1


def convert(file, out, separator):
    size = file.stat().st_size
    if size % 2 or size == 0:
        sys.exit(f"convert_nanogpt_data.py: {file}: {size} bytes are no uint16 ids")
    with file.open("rb") as ids:
        if int.from_bytes(ids.read(4), "little") in (MAGIC, WIDE):
            sys.exit(f"convert_nanogpt_data.py: {file}: a token shard, which training reads as it is")
        ids.seek(-2, 2)
        last = ids.read(2)
        begin = last if last == separator.to_bytes(2, "little") else b""
        ids.seek(0)
        left, shard = size // 2, 0
        while left > 0:
            count = min(SHARD_TOKENS, left)
            path = out / f"{file.stem}_{shard:06}.bin"
            with path.open("xb") as to:
                header = array.array("i", [MAGIC, VERSION, count] + [0] * 253)
                to.write(header.tobytes() + begin + ids.read(2 * count - len(begin)))
            left, shard, begin = left - count, shard + 1, b""
    print(f"{file}: {size // 2} tokens in {shard} shard{'s' * (shard > 1)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--separator", type=int, default=50256)
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True)
    for file in arguments.files:
        convert(file, arguments.out, arguments.separator)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"convert_nanogpt_data.py: {error}")
