#!/usr/bin/env python3
"""Compares the share of tokens that best-fit packing trains on, in nanochat's loader and ours, on the same documents.

The documents' lengths are distributed as in web text (lognormal), with several row lengths. Ours shuffles documents,
nanochat's loader takes them in order, so the shares agree within sampling error, not exactly;
tests/unit/data/row_packer_test.cpp tests that the choices are the same document by document.
  scripts/check_packing.py NANOCHAT build/release/muograph [--documents 100000] [--out FILE]
NANOCHAT is a clone of karpathy/nanochat; needs the packages torch, pyarrow and numpy.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np

BOS = 0
VOCABULARY = 1000
SHAPES = ((256, 400.0, 0.9), (1024, 400.0, 0.9), (2048, 400.0, 0.9), (2048, 1200.0, 1.1))  # row, median, sigma


class Tokenizer:
    def get_bos_token_id(self):
        return BOS

    def encode(self, documents, prepend, num_threads):
        assert prepend == BOS and num_threads > 0
        return documents  # already tokens, after BOS


def nanochat_share(dataloader, documents, row):
    """The share for the rows that use all documents except those waiting at the end."""
    taken = [0]

    def batches(_split, _resume, size):
        for i in range(0, len(documents), size):
            taken[0] += sum(len(document) for document in documents[i:i + size])
            yield documents[i:i + size], (0, 0, 1)

    dataloader._document_batches = batches
    loader = dataloader.tokenizing_distributed_data_loader_with_state_bos_bestfit(
        Tokenizer(), 16, row, "train", device="cpu")
    packed, share = 0, None
    try:
        while True:
            next(loader)
            packed += 16 * (row + 1)
            waiting = sum(len(document) for document in loader.gi_frame.f_locals["doc_buffer"])
            share = packed / (taken[0] - waiting)
    except RuntimeError:  # no documents are left
        return share


def our_share(program, documents, row):
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("train_0.bin", documents), ("val_0.bin", documents[:100])):
            tokens = np.concatenate(part).astype("<u2")
            header = np.zeros(256, "<i4")
            header[:3] = 20240520, 1, len(tokens)
            Path(folder, name).write_bytes(header.tobytes() + tokens.tobytes())
        output = subprocess.run(
            [program, "plan", "--data", folder, "--vocab-size", str(VOCABULARY), "--bos-token", str(BOS), "--packing",
             "best-fit", "--max-seq-len", str(row), "--depth", "1", "--devices", "1", "--json"],
            check=True, capture_output=True, text=True).stdout
    return json.loads(output)["packing_share"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanochat")
    parser.add_argument("muograph")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--out")
    args = parser.parse_args()
    sys.path.insert(0, args.nanochat)
    # Listing Parquet files needs packages that packing does not.
    sys.modules["nanochat.dataset"] = types.SimpleNamespace(list_parquet_files=None)
    from nanochat import dataloader

    random = np.random.default_rng(1)
    results = []
    for row, median, sigma in SHAPES:
        lengths = np.maximum(1, np.rint(random.lognormal(np.log(median), sigma, args.documents))).astype(int)
        documents = [[BOS] + [1] * (length - 1) for length in lengths]
        theirs = nanochat_share(dataloader, documents, row)
        ours = our_share(args.muograph, documents, row)
        results.append({"row": row, "median_tokens": median, "sigma": sigma, "nanochat": round(theirs, 5),
                        "muograph": round(ours, 5), "difference": round(ours - theirs, 5)})
        print(json.dumps(results[-1]), flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"command": f"scripts/check_packing.py NANOCHAT {args.muograph} --documents {args.documents}",
                       "documents": args.documents, "shares": results}, file, indent=1)
            file.write("\n")
    if any(abs(result["difference"]) > 0.001 for result in results):
        raise SystemExit("the shares differ by more than 0.1 %")


if __name__ == "__main__":
    main()
