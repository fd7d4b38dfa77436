#!/usr/bin/env python3
"""Compares our ids with those of the Python packages tokenizers, tiktoken and sentencepiece.
  scripts/check_tokenizers.py [--random N] [--text FILE] [--out FILE.json] PROGRAM TOKENIZER...
TOKENIZER is a tokenizer.json (compared with tokenizers), ranks of tiktoken (gpt2 and cl100k_base, by their number), or
a SentencePiece model (NAME.model), for which decoded texts are compared as well.
Needs: pip install tokenizers tiktoken sentencepiece, or those of them that the TOKENIZERs are compared with."""
import argparse
import base64
import datetime
import importlib.metadata
import json
import pathlib
import random
import subprocess
import sys
import tempfile

SAMPLES = [
    "", " ", "\n", "a", "Hello, world!", "don't DON'T we'll WE'LL I'm it's you've they'd 'S 'ſ",
    "  leading and trailing  ", "tabs\tand\r\nnew\n\n\nlines  \n  x", "12 123 1234 12345678901234567890 ٣٤٥ ½ Ⅷ",
    "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย 한국어 日本語テキスト 中文字符，标点。", "naïve café ñ ß ﬁ Ǆ",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☕️ \U0001f9ff", "e\u0301 combining a\u0308\u0328", "zero\u200bwidth\ufeffbom\u00a0nbsp\u3000wide\u180evowel",
    "x" * 5000, " " * 5000 + "y", "\n" * 3000, "ab " * 3000, "word" + "!?" * 2000, "。" * 2000, "7" * 3000,
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x[0]}\n\n\tif x!=3 and y<=4:\n\t\tpass  # comment\n",
    "https://example.org/a/b?c=d&e=%20#f user@example.org $1,234.56 -- ... ___ +++", "<|endoftext|> <|bos|> </s>",
    "\x00\x01\x7f\x85\u2028\u2029", "İstanbul ıI ΣΑΣ ﷽ ꙮ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 ⁿ ² ㍍",
]
ALPHABETS = [
    (0x20, 0x7E), (0x20, 0x7E), (0x9, 0xD), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA),
    (0x621, 0x64A), (0x905, 0x939), (0xE01, 0xE3A), (0x1100, 0x1112), (0x2000, 0x206F), (0x2190, 0x21FF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x300, 0x36F),
]
WORDS = ["", " ", " ", "\n", "'s", "  ", "12"]
# Characters that normalizers change, and added tokens.
MORE_ALPHABETS = [
    (0x1161, 0x11C2), (0x5B0, 0x5C2), (0x930, 0x94D), (0x1AB0, 0x1ACE), (0x1E00, 0x1FFE), (0x2126, 0x212B),
    (0xF900, 0xFAD9), (0x11930, 0x11943), (0x1D157, 0x1D172),
]
MORE_WORDS = ["   ", "\t\t\t", "<think>", "</tool_call>", "<|fim_prefix|>", "|||IP_ADDRESS|||", " " * 9, "\u0338", "|||",
              "<tool_", "e"]


def alphabet():
    """GPT-2's alphabet, in the order of the bytes."""
    out, extra = {}, 0x100
    for byte in range(256):
        prints = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        out[chr(byte if prints else extra)] = byte
        extra += not prints
    return out


def random_text(rng, alphabets=ALPHABETS, words=WORDS):
    parts = []
    for _ in range(rng.randint(1, 6)):
        low, high = rng.choice(alphabets)
        parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        parts.append(rng.choice(words))
    return "".join(parts)


def references(path):
    """Yields names and functions from a list of texts to lists of ids."""
    if path.suffix == ".model":
        import sentencepiece
        yield "sentencepiece", sentencepiece.SentencePieceProcessor(model_file=str(path)).encode, []
        return
    if path.suffix == ".json":
        import tokenizers
        theirs = tokenizers.Tokenizer.from_file(str(path))
        specials = [t["content"] for t in json.loads(path.read_text())["added_tokens"] if t["special"]]
        yield "tokenizers", lambda texts: [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)], specials
        return
    import tiktoken
    ranks = {base64.b64decode(token): int(rank) for token, rank in
             (line.split() for line in path.read_text().splitlines() if line)}
    from tiktoken_ext import openai_public
    pattern = {50256: openai_public.r50k_pat_str}.get(len(ranks))
    if pattern is None:
        tiktoken.load.load_tiktoken_bpe = openai_public.load_tiktoken_bpe = lambda *a, **k: ranks
        pattern = openai_public.cl100k_base()["pat_str"]
    theirs = tiktoken.Encoding("checked", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    yield "tiktoken", lambda texts: [theirs.encode_ordinary(text) for text in texts], []


def ours(program, path, texts, folder):
    file = folder / "texts.jsonl"
    with file.open("w") as out:
        for text in texts:
            out.write(json.dumps({"text": text}) + "\n")
    run = subprocess.run([program, "tokenizer", "encode", file, "--tokenizer", path], capture_output=True, check=True)
    return [[int(word) for word in line.split()] for line in run.stdout.decode().split("\n")[:-1]]


def texts_differ(program, path, ids, folder):
    """True if our decoding of these ids, of one text and the next, differs from the package's."""
    import sentencepiece
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    file = folder / "ids"
    file.write_text(" ".join(map(str, ids)))
    run = subprocess.run([program, "tokenizer", "decode", file, "--tokenizer", path], capture_output=True, check=True)
    return run.stdout != theirs.decode(ids).encode()


def versions_of(names):
    """Versions of the Python packages compared with; for sentencepiece also of Debian's library, which we use."""
    out = {name: importlib.metadata.version(name) for name in names}
    if "sentencepiece" in out:
        out["libsentencepiece0"] = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libsentencepiece0"],
                                                  capture_output=True, text=True, check=True).stdout
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizers", nargs="+", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=20000, help="random texts")
    parser.add_argument("--text", type=pathlib.Path, action="append", default=[], help="additional text; its lines are compared")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    rng = random.Random(1)
    texts = SAMPLES + [random_text(rng, ALPHABETS + MORE_ALPHABETS, WORDS + MORE_WORDS) for _ in range(arguments.random)]
    for file in arguments.text:
        whole = file.read_text()
        texts += [whole] + whole.splitlines(keepends=True)
    results = []
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.tokenizers:
            for name, encode, specials in references(path):
                # tokenizers matches special tokens in every text.
                asked = [text for text in texts if not any(special in text for special in specials)]
                mine = ours(arguments.program, path, asked, pathlib.Path(folder))
                theirs = encode(asked)
                assert len(mine) == len(theirs) == len(asked)
                differ = [i for i in range(len(asked)) if mine[i] != theirs[i]]
                for i in differ[:5]:
                    print(f"{path}: {asked[i][:80]!r}: {mine[i][:20]}, {name} has {theirs[i][:20]}", file=sys.stderr)
                failed |= bool(differ)
                results.append({"tokenizer": path.name, "compared_with": name, "texts": len(asked),
                                "ids": sum(map(len, theirs)), "texts_that_differ": len(differ)})
                if name == "sentencepiece":
                    flat = [i for ids in theirs for i in ids][:2_000_000]
                    results[-1]["decoded_ids"] = len(flat)
                    results[-1]["decoded_texts_differ"] = texts_differ(arguments.program, path, flat, pathlib.Path(folder))
                    failed |= results[-1]["decoded_texts_differ"]
                print(json.dumps(results[-1]))
    if arguments.out:
        arguments.out.write_text(json.dumps({
            "date": datetime.date.today().isoformat(),
            "command": f"scripts/check_tokenizers.py --random {arguments.random}" +
                       "".join(f" --text {f.name}" for f in arguments.text) +
                       " muograph " + " ".join(p.name for p in arguments.tokenizers),
            **versions_of(sorted({result["compared_with"] for result in results})), "results": results}, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
