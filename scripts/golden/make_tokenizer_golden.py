#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/: ranks that rustbpe trains on some texts, the same as a tokenizer.json, and the ids of
these texts by tiktoken and tokenizers.
  scripts/golden/make_tokenizer_golden.py
pieces.jsonl has texts and their pieces by tokenizers and tiktoken with the patterns of split_patterns.py;
nfc.jsonl has texts and their forms by the NFC normalizer of tokenizers.
Needs: pip install rustbpe tokenizers tiktoken."""
import base64
import json
import pathlib
import random
import re

import rustbpe
import tiktoken
import tokenizers
from tiktoken_ext import openai_public
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

import split_patterns
import tokenizer_texts

VOCAB = 700
NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+")


TEXTS = [
    "AT&T's 1234567 naïve 你好。”ひ ſsK\u212a ßﬀ x\n\n  y",
    "abcc aab axxb ⓐⅧ½٣ e\u0301\u0363\u200d\x85+$~^\u10fc\U0001171e👍🏽 \r\n_-[]क्षि\x0b the 42",
]


def pieces_by_tiktoken(pattern):
    parts = {bytes([byte]) for byte in range(256)}
    for text in map(str.encode, TEXTS):
        parts |= {text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    encoding = tiktoken.Encoding("golden", pat_str=pattern, mergeable_ranks={p: r for r, p in enumerate(sorted(parts))},
                                 special_tokens={})
    return [[encoding.decode_single_token_bytes(i) for i in encoding.encode_ordinary(text)] for text in TEXTS]


def lengths(text, pieces):
    """The number of bytes of each piece of the text, negative for removed text."""
    out, at = [], 0
    for piece in pieces:
        found = text.index(piece, at)
        out += [at - found] * (found > at) + [len(piece)]
        at = found + len(piece)
    return out + [at - len(text)] * (at < len(text))


def write_pieces(path):
    with path.open("w") as out:
        def write(pieces=None, **line):
            if pieces:
                line["pieces"] = [lengths(text.encode(), each) for text, each in zip(TEXTS, pieces)]
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

        def by_tokenizers(pattern, behavior="Isolated", invert=False):
            split = pre_tokenizers.Split(Regex(pattern), re.sub("(?<=.)(?=[A-Z])", "_", behavior).lower(), invert)
            write(by="tokenizers", pattern=pattern, **({"behavior": behavior} if behavior != "Isolated" else {}),
                  **({"invert": True} if invert else {}),
                  pieces=[[piece.encode() for piece, _ in split.pre_tokenize_str(text)] for text in TEXTS])
        write(texts=TEXTS)
        for pattern in split_patterns.ONIGURUMA:
            by_tokenizers(pattern)
        for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
            for pattern in (r"\p{L}+", r"[ \n]", r"x*", r"\p{N}", split_patterns.KNOWN[0]):
                by_tokenizers(pattern, behavior)
                by_tokenizers(pattern, behavior, True)
        for pattern in split_patterns.TIKTOKEN[len(split_patterns.KNOWN):]:
            write(by="tiktoken", pattern=pattern, pieces=pieces_by_tiktoken(pattern))


def write_nfc(path):
    """Writes random sequences of letters and marks, and texts for each range of characters that NFC changes."""
    rng = random.Random(11)
    ranges = [(0x41, 0x7A), (0xC0, 0x17F), (0x300, 0x345), (0x323, 0x338), (0x5B0, 0x5C2), (0x610, 0x65F), (0x915, 0x94D),
              (0x9BE, 0x9D7), (0xB92, 0xBD7), (0xDCA, 0xDDF), (0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x1AB0, 0x1ACE),
              (0x1E00, 0x1FFF), (0x2000, 0x2001), (0x2126, 0x212B), (0x3046, 0x309A), (0xF900, 0xFAFF), (0xFB1D, 0xFB4E),
              (0x11099, 0x110BA), (0x11347, 0x11357), (0x11930, 0x11943), (0x1D157, 0x1D172), (0x1E130, 0x1E136),
              (0x2F800, 0x2FA1D)]
    with path.open("w") as out:
        for low, high in ranges:
            text = "".join(chr(rng.randint(*rng.choice([(low, high), (low, high), rng.choice(ranges)]))) for _ in range(24))
            out.write(json.dumps([text, normalizers.NFC().normalize_str(text)], ensure_ascii=False) + "\n")


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/tokenizer"
    folder.mkdir(exist_ok=True)
    write_pieces(folder / "pieces.jsonl")
    write_nfc(folder / "nfc.jsonl")
    rng = random.Random(7)
    texts = [text[:120] for text in tokenizer_texts.SAMPLES] + [tokenizer_texts.random_text(rng) for _ in range(40)]
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
        to_letters = list(tokenizer_texts.alphabet())
        word = {token: "".join(to_letters[byte] for byte in token) for token in ranks}
        merges = []
        for token, rank in ranks.items():  # its parts are the result of the earlier merges
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
