#!/usr/bin/env python3
"""Converts nanochat's tokenizer.pkl to a tokenizer.json and compares the ids of a text.
  scripts/convert_nanochat_tokenizer.py [--program FILE] tokenizer.pkl tokenizer.json
Loading a pickle runs its code: convert only files that you trust. Needs: pip install tiktoken."""
import argparse
import base64
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

TEXT = "Hello, don't 12345 x!?\n\n  naïve 中文 👍🏽 \t<|bos|> the end"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pickle", type=pathlib.Path)
    parser.add_argument("out")
    parser.add_argument("--program", help="muograph: in a clone in this folder, or on PATH",
                        default="build/release/muograph" if os.path.exists("build/release/muograph") else "muograph")
    arguments = parser.parse_args()
    encoding = pickle.loads(arguments.pickle.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        ranks = pathlib.Path(folder) / "ranks.tiktoken"
        ranks.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n"
                                 for token, rank in encoding._mergeable_ranks.items()))
        special = " ".join(f"{token}={rank}" for token, rank in encoding._special_tokens.items())
        subprocess.run([arguments.program, "tokenizer", "convert", ranks, "--pattern", encoding._pat_str,
                        "--special", special, "--out", arguments.out], check=True)
    run = subprocess.run([arguments.program, "tokenizer", "encode", "--tokenizer", arguments.out], check=True,
                         input=TEXT.encode(), capture_output=True)
    ours = [int(word) for word in run.stdout.split()]
    theirs = encoding.encode_ordinary(TEXT)
    if ours != theirs:
        sys.exit(f"convert_nanochat_tokenizer.py: {arguments.out}: its ids differ from those of {arguments.pickle}: {ours}, {theirs}")
    print(f"{arguments.out}: {encoding.n_vocab} tokens, the same ids for a text of {len(theirs)}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, pickle.UnpicklingError, AttributeError) as error:
        sys.exit(f"convert_nanochat_tokenizer.py: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
