#!/usr/bin/env python3
"""Writes token shards of this machine's C and C++ headers and Python sources, to train on another machine.
  scripts/gpu_shards.py DIR [--tokens N] [--vocab-size V] [--sources FOLDER...]
Writes DIR/train.bin and DIR/val.bin (llm.c's format, data/shards.h), and DIR.json, which describes them.
A token is a byte, or one of the V - 257 pieces that save the most bytes: a word or a run of punctuation or blanks, with
the blank before it. Id 256 starts a file. This is not a BPE: losses are not comparable with anything else."""
import argparse
import array
import collections
import hashlib
import json
import os
import pathlib
import re
import sys

MAGIC, VERSION, HEADER = 20240520, 1, 256
START, FIRST_PIECE = 256, 257
PIECE = re.compile(rb" ?[A-Za-z_]+| ?[0-9]+| ?[^\sA-Za-z0-9_]+|\s+")
WHAT = "C and C++ headers and Python sources; bytes and the pieces that save most bytes, no BPE"
SUFFIXES = {".h", ".hpp", ".py"}
VAL_FILES = 20  # one file in this many is held out
SOURCES = ["/usr/include", os.path.dirname(os.__file__)]


def texts(sources, most_bytes):
    """Distinct files, in an order that depends only on their contents."""
    found = {}
    for source in sources:
        for path in pathlib.Path(source).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size < 1 << 20:
                text = path.read_bytes()
                found[hashlib.sha256(text).digest()] = path
    out, size = [], 0
    for digest in sorted(found):
        out.append(found[digest].read_bytes())
        size += len(out[-1])
        if size >= most_bytes and len(out) > 1:  # one to train on, one held out
            break
    return out


def vocabulary(files, size):
    counts = collections.Counter()
    for text in files:
        counts.update(PIECE.findall(text))
    saved = sorted(((count * (len(piece) - 1), piece) for piece, count in counts.items()
                    if len(piece) > 1), reverse=True)
    return [piece for _, piece in saved[:size - FIRST_PIECE]]


def encode(text, ids):
    out = array.array("H", [START])
    for piece in PIECE.findall(text):
        if (token := ids.get(piece)) is None:
            out.extend(piece)
        else:
            out.append(token)
    return out


def write_shard(path, tokens):
    header = array.array("i", [MAGIC, VERSION, len(tokens)] + [0] * (HEADER - 3))
    path.write_bytes(header.tobytes() + tokens.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=15 << 19, help="tokens in both shards together, two bytes each")
    parser.add_argument("--vocab-size", type=int, default=32768)
    parser.add_argument("--sources", nargs="+", default=SOURCES)
    arguments = parser.parse_args()
    files = texts(arguments.sources, 6 * arguments.tokens)
    pieces = vocabulary(files, arguments.vocab_size)
    ids = {piece: FIRST_PIECE + i for i, piece in enumerate(pieces)}
    shards = {"train": array.array("H"), "val": array.array("H")}
    read = 0
    for index, text in enumerate(files):
        shards["val" if index % VAL_FILES == 0 else "train"].extend(encode(text, ids))
        read += len(text)
        if all(shards.values()) and sum(map(len, shards.values())) >= arguments.tokens:
            break
    if not all(shards.values()):
        sys.exit(f"gpu_shards.py: too little text in {', '.join(map(str, arguments.sources))}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in shards.items():
        write_shard(arguments.folder / f"{name}.bin", tokens)
    facts = {"tokens": {name: len(tokens) for name, tokens in shards.items()}, "bytes": read,
             "what": WHAT}
    (arguments.folder.with_suffix(".json")).write_text(json.dumps(facts) + "\n")
    print(f"{len(shards['train'])} tokens to train on, {len(shards['val'])} held out, of {read} bytes")


if __name__ == "__main__":
    main()
