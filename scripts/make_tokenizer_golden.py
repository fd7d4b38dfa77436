#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: ranks that rustbpe learns from some texts, the same as tokenizer.json, and the ids that
tiktoken and tokenizers give to these texts.
  scripts/make_tokenizer_golden.py
Needs: pip install rustbpe tokenizers tiktoken."""
import base64
import json
import pathlib
import random

import rustbpe
import tiktoken
import tokenizers
from tiktoken_ext import openai_public
from tokenizers import Regex, decoders, models, pre_tokenizers

import check_tokenizers

VOCAB = 700
NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+")


def letters():
    out, extra = [], 0x100
    for byte in range(256):
        prints = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        out.append(chr(byte if prints else extra))
        extra += not prints
    return out


def main():
    folder = pathlib.Path(__file__).parent.parent / "tests/golden/tokenizer"
    folder.mkdir(exist_ok=True)
    rng = random.Random(7)
    texts = [text[:120] for text in check_tokenizers.SAMPLES] + [check_tokenizers.random_text(rng) for _ in range(40)]
    learner = rustbpe.Tokenizer()
    learner.train_from_iterator(iter(texts), VOCAB, pattern=NANOCHAT)
    ranks = {bytes(token): rank for token, rank in learner.get_mergeable_ranks()}
    (folder / "ranks.tiktoken").write_text(
        "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))

    tiktoken.load.load_tiktoken_bpe = openai_public.load_tiktoken_bpe = lambda *a, **k: ranks
    patterns = {"gpt2": openai_public.r50k_pat_str, "gpt4": openai_public.cl100k_base()["pat_str"],
                "gpt4o": openai_public.o200k_base()["pat_str"], "nanochat": NANOCHAT}
    with (folder / "ids.jsonl").open("w") as out:
        for name, pattern in patterns.items():
            theirs = tiktoken.Encoding("golden", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
            for text in texts:
                out.write(json.dumps({"by": name, "text": text, "ids": theirs.encode_ordinary(text)},
                                     ensure_ascii=False, separators=(",", ":")) + "\n")
        to_letters = letters()
        word = {token: "".join(to_letters[byte] for byte in token) for token in ranks}
        merges = []
        for token, rank in ranks.items():  # the parts are what the earlier merges leave of it
            if len(token) > 1:
                parts = [bytes([byte]) for byte in token]
                while len(parts) > 2:
                    at = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], VOCAB))
                    parts[at:at + 2] = [parts[at] + parts[at + 1]]
                merges.append((rank, tuple(word[part] for part in parts)))
        theirs = tokenizers.Tokenizer(models.BPE({word[t]: r for t, r in ranks.items()}, [m for _, m in sorted(merges)]))
        theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(NANOCHAT), "isolated"),
                                                        pre_tokenizers.ByteLevel(False, use_regex=False)])
        theirs.decoder = decoders.ByteLevel()
        theirs.add_special_tokens(["<|bos|>", "<|user_start|>"])
        theirs.save(str(folder / "tokenizer.json"), pretty=False)
        for text in texts:
            out.write(json.dumps({"by": "tokenizer.json", "text": text,
                                  "ids": theirs.encode(text, add_special_tokens=False).ids},
                                 ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
