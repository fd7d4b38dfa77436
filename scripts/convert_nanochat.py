#!/usr/bin/env python3
"""Converts nanochat's model files: model_000123.pt to model_000123.safetensors, or back.

    python scripts/convert_nanochat.py FROM TO

`muograph checkpoint import` reads the safetensors file, `muograph checkpoint export` writes one. meta_000123.json,
which is the same for both formats, is copied from FROM's folder to TO's. Needs PyTorch and safetensors; the .pt file is
loaded without running code from it.

To safetensors: removes the prefix `_orig_mod.` that torch.compile adds to names; values and dtypes stay. To .pt: token
and value embeddings become bfloat16, as in nanochat's own files (its optimizer keeps them in that dtype), unless
--embeddings is float32.
"""
import argparse
import pathlib
import shutil
import sys

import safetensors.torch
import torch

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def is_embedding(name):
    return name == "transformer.wte.weight" or name.startswith("value_embeds.")


def to_safetensors(source, target):
    state = torch.load(source, map_location="cpu", weights_only=True)
    state = {name.removeprefix("_orig_mod."): value.contiguous() for name, value in state.items()}
    safetensors.torch.save_file(state, target, metadata={"format": "pt"})
    return state


def to_pt(source, target, embeddings):
    state = {name: value.to(embeddings) if is_embedding(name) else value
             for name, value in safetensors.torch.load_file(source).items()}
    torch.save(state, target)
    return state


def meta_beside(model):
    """The path of meta_000123.json beside model_000123.pt, or None for a file with another kind of name."""
    if not model.stem.startswith("model_"):
        return None
    return model.with_name(f"meta_{model.stem.removeprefix('model_')}.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM", type=pathlib.Path)
    parser.add_argument("target", metavar="TO", type=pathlib.Path)
    parser.add_argument("--embeddings", choices=DTYPES, default="bfloat16", help="dtype of embeddings in a .pt file")
    arguments = parser.parse_args()
    source, target = arguments.source, arguments.target
    kinds = (source.suffix, target.suffix)
    if not source.is_file():
        parser.error(f"{source} does not exist")
    if target.exists():
        parser.error(f"{target} exists: choose another name")
    meta, meta_target = meta_beside(source), meta_beside(target)
    copies_meta = meta and meta.is_file() and meta_target and meta != meta_target
    if copies_meta and meta_target.exists() and meta_target.read_bytes() != meta.read_bytes():
        parser.error(f"{meta_target} exists and is not {meta}: choose another name or folder for TO")
    if kinds == (".pt", ".safetensors"):
        state = to_safetensors(source, target)
    elif kinds == (".safetensors", ".pt"):
        state = to_pt(source, target, DTYPES[arguments.embeddings])
    else:
        parser.error(f"{source} to {target}: one must end in .pt, the other in .safetensors")
    print(f"{target}: {len(state)} tensors")
    if copies_meta:
        shutil.copyfile(meta, meta_target)
        print(f"{meta_target}: copied from {meta}")
    elif not (meta_target and meta_target.is_file()):
        print(f"no meta_*.json beside {target}: give one to `checkpoint import` with --meta")


if __name__ == "__main__":
    sys.exit(main())
