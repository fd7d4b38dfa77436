#!/usr/bin/env python3
"""Compares text splitting with the Python packages: forms of tokenizer.json with tokenizers, patterns of ranks with
tiktoken, and the output of `tokenizer convert` for these with tokenizers. Vocabularies are generated here. A form that
the program refuses counts as refused; it must be refused before any text is read.
  scripts/check_split_patterns.py [--random N] [--patterns N] [--only WORD] [--out FILE.json] PROGRAM
Needs: pip install tokenizers tiktoken."""
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
import unicodedata

import tiktoken
import tokenizers

import check_tokenizers

KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
# The patterns of split_pattern.cpp.
KNOWN = [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|"
    r"\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
# Cases in which the dialects differ, or PCRE2 did; first those for both comparisons below.
BOTH = KNOWN + [
    KIMI, r"\p{N}{1,3}+|\P{N}+", r"\p{N}{2}+.?|.", r"\p{N}{2,}+.?|.", r"\w+|\W+", r"\d+|\D", r"\h+|.", r"\s+$|\s|\S+", r"(?m:\w$)|.",
    r".+", r"[[:alpha:]]+|.", r"[[:punct:]]+|.", r"[[:^space:]]+", r"[\w&&[^\d_]]+|[^\w]", r"[^a-c&&b-z]+",
    r"[a-z&&[^aeiou]&&[^x-z]]+|.", r"[^[a-c][x-z]]+", r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|.",
    r"\p{Greek}+|\p{Cyrillic}+|\p{Latin}+|\p{Thai}+|[^\p{Latin}]", r"a{2}?|.", r"a{1,2}?b|.", r"a{,2}b|.", r"a+?b|.", r"\w*?.|\n", r"\w+?\w|.",
    r"(?i)ss|ff|st|k+|[^a-z]", r"(?i:[a-c]+|s)|.", r"a(?=b)|\w(?!\d)|.", r"(?>a|ab)c|.", r"a++b?|.",
    r"\x41|\x{e9}|\u0061|\t|\n|\r|\f|\a|\e|\v|[^\x00-\x20]", r"[\-a\]]+|[^\-]", r"[-a]+|.", r"\p{L}\p{M}*|.",
    r"\p{Alphabetic}+|\p{Lu}|\P{L}", r"\p{Letter}+|\p{Decimal_Number}|.", r"(?:a|b)+|.", r"(a|b){2}|.", r"\$\{|\.|\w",
]
TIKTOKEN = BOTH + [
    r"[a-z--[aeiou]]+|.", r"[a-f--c&&b-e]|.", r"[\w--\d--_]+|.", r"\pL+|\PL",
    r"(?i:[[:alpha:]]+)|.", r"(?i-s:.)|\n", r"(?s:.)\w?", r"(?s).", r"(?m)\s$|\S+|\s", r"\p{Nd}", r"a|b",
]
REFUSED_OF_TIKTOKEN = [
    r"[a-z~~g-p]+|.", r"\p{script=Han}|.", r"\p{gc=Nd}|.", r"\p{scx=Han}|.", r"^a|.", r"\ba|.", r"(?<=a)b|.", r"(a)\1|.", r"(?<x>a)|.", r"a*", r"(?x)a b|.",
    r"\Ga|.", r"\Z|.", r"\K.", r"\R|.", r"\X", r"(a?)+b|.", r"(?i)é|.", r"(?i)\p{L}|.", r"{", r"[]a]|.", r"[+--]|.",
    r"a**|.", r"(?=a)+.", r"(?#x)a|.", r"\Q.", r"a{0}.", r"(?U)a+|.", r"\p{Emoji}|.", r"[[.a.]]|.", r"\07|.",
]
ONIGURUMA = BOTH + [
    r"", r"x*", r"\b", r"$", r"^", r"(?m).+", r"^\w+|.", r"\A\w|.", r"\w\Z|.", r"\w\z|.", r"\Ga", r"(?<=\s)\S", r"(?<!\d)\d",
    r"\R|.", r"\X", r"\N+", r"\O{3}", r"(?<x>a|b)\k<x>|.", r"(?x) a b | .", r"\p{^L}+", r"\p{Emoji}+|.", r"(?i:ß|ﬀ|k)|.",
    r"\K.", r"\H+", r"\p{Upper}+|\p{Punct}", r"\u0041+|.", r"a{2,1}|.", r"(?~ab)|.", r"\y", r"[[:word:]]+|\p{Word}|.",
    r"[[:alpha:]-]+|[[:^alpha:]]", r"\p{Alphabetic}+|\P{Lower}", r"[^[:punct:]a]+", r"[[:^punct:]]+", r"\p{^word}+|.", r"[\p{Mn}a]+|\P{Mc}", r"[\p{Punct}[:lower:]]+|.",
    r"(?W:\w+)|.", r"[\p{Han}\p{N}&&[^0-9]]+", r"[一-龥぀-ゟ゠-ヿ]+", r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
]
REFUSED_OF_ONIGURUMA = [r"(", r"(?s:.)", r"[a", r"\p{Nonsense}", r"*a", r"\1", r"\p{Extender}|.", r"[\p{Diacritic}a]|."]
CHARACTERS = list("aabbcckKsStTxyzeioulLdDmvrR  \n\r\t0123''__&&--~^$[]{}()|.*+?\\/\"@#!:,") + [
    "\x0b", "\x0c", "\x07", "\x1b", "\x85", "\xa0", "\u180e", "\u200b", "\u200c", "\u200d", "\u2028", "\u3000", "\ufeff", "ſ", "\u212a",
    "ß", "ŉ", "ﬀ", "ﬆ", "İ", "ı", "é", "É", "e\u0301", "\u0345", "\u0363", "\u10fc", "ⓐ", "Ⓐ", "Ⅷ", "½", "²", "٣", "३", "你", "好", "。", "”", "〆", "ー",
    "ひ", "カ", "한", "ไ", "ก", "ि", "क", "्", "ष", "α", "Σ", "ς", "Я", "ж", "ǅ", "ʰ", "👍", "🏽", "\ufe0f", "🇩", "☕", "€", "+", "\ue000",
    "'s", "'LL", "'ſ", "ab", "abc", "the ", " 42", "1234", "\r\n", "AT&T", "x\n", "  ", "<<", "<<ab",
    "abc>>", "c>>", ">", "\n\n\n",
]


def random_text(rng):
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, 14)))


def random_class(rng, depth=0):
    """A random character class in tiktoken's syntax."""
    items = ["a-f", "k", "s", "x-z", "0-9", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\p{L}", r"\P{Lu}", r"\p{Han}",
             r"\p{M}", "[:punct:]", "[:^lower:]", "é", r"\-", r"\n", "_", r"\h"]
    if depth < 2:
        items += [random_class(rng, depth + 1)] * 3

    def union():
        return "".join(rng.choice(items) for _ in range(rng.randint(1, 3)))
    return "[" + rng.choice(["", "", "^"]) + union() + "".join(
        rng.choice(["&&", "&&", "--"]) + union() for _ in range(rng.choice([0, 0, 1, 2]))) + "]"


def random_pattern(rng, depth=0):
    """A random pattern in tiktoken's syntax."""
    def atom():
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(["a", "b", "s", "k", " ", "é", "1", r"\n", ".", r"\w", r"\s", r"\S", r"\d", r"\p{L}", r"\p{N}", "'"])
        if kind < 0.55:
            return random_class(rng)
        if kind < 0.65:
            return rng.choice(["(?=", "(?!"]) + random_pattern(rng, depth + 1) + ")"
        if kind < 0.7:
            return "$"
        if depth > 2:
            return "a"
        return rng.choice(["(", "(?:", "(?>", "(?i:", "(?s:", "(?m:"]) + random_pattern(rng, depth + 1) + ")"

    def piece():
        return atom() + rng.choice(["", "", "", "?", "*", "+", "??", "*?", "+?", "?+", "*+", "++", "{2}", "{1,2}", "{,2}", "{2,}",
                                    "{1,2}?", "{1,2}+", "{2}?"])
    out = "|".join("".join(piece() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3)))
    # Keeps patterns that match the empty string rare, because they are refused.
    return out if depth else f"(?:{out}){random_class(rng)}|{random_class(rng)}+"


def forms_of_tokenizer_json(vocabulary):
    """Yields names and tokenizers of the package."""
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
    vocab, merges = vocabulary

    def made(*pre, normalizer=None, added=(), special=(), **model):
        out = tokenizers.Tokenizer(models.BPE(vocab, merges, **model))
        last = [] if isinstance(pre[-1], pre_tokenizers.ByteLevel) else [pre_tokenizers.ByteLevel(False, use_regex=False)]
        out.pre_tokenizer = pre_tokenizers.Sequence([*pre, *last])
        out.decoder = decoders.ByteLevel()
        if normalizer:
            out.normalizer = normalizer
        out.add_tokens(list(added))
        out.add_special_tokens([*special, "<|endoftext|>"])
        return out

    def split(pattern, behavior="isolated", invert=False):
        return pre_tokenizers.Split(pattern if isinstance(pattern, str) else Regex(*pattern), behavior, invert)
    for pattern in ONIGURUMA + REFUSED_OF_ONIGURUMA:
        try:
            yield f"Regex {pattern}", made(split((pattern,)))
        except Exception as error:  # pylint: disable=broad-except
            yield "known pattern", made(split((KNOWN[0],)))
            yield pattern, str(error)
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for pattern in ((r"\p{L}+",), (r"[ \n]",), (r"x*",), (r"\p{N}{1,3}",), (KNOWN[0],), (r"\p{N}",), " ", "a.b", "AT&T", ""):
                yield f"Split {pattern} {behavior} {invert}", made(split(pattern, behavior, invert))
    yield "Digits each", made(pre_tokenizers.Digits(True), split((r"\w+|\W+",)))
    yield "Digits", made(pre_tokenizers.Digits(False), split((r"\w+|\W+",), "removed", True))
    yield "three splits", made(split((ONIGURUMA[0],)), split((r"\p{N}{1,3}",)), split((r"^.|$",), "merged_with_next"))
    yield "Digits, then ByteLevel's own", made(pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False, use_regex=True))
    for name, which in (("NFC", normalizers.NFC()), ("NFKC", normalizers.NFKC()), ("Lowercase", normalizers.Lowercase()),
                        ("Replace", normalizers.Replace("a", "b")), ("Prepend", normalizers.Prepend("x")),
                        ("Strip", normalizers.Strip()), ("no normalizer, in a Sequence", normalizers.Sequence([]))):
        yield f"normalizer {name}", made(split((KNOWN[0],)), normalizer=which)
    for name, which in (("Whitespace", pre_tokenizers.Whitespace()), ("Punctuation", pre_tokenizers.Punctuation()),
                        ("Metaspace", pre_tokenizers.Metaspace()), ("prefix space", pre_tokenizers.ByteLevel(True, use_regex=True))):
        yield f"pre-tokenizer {name}", made(which)
    token = tokenizers.AddedToken
    for name, added in (("plain", [token("the "), token("AT&T", normalized=False)]),
                        ("overlapping", [token("<<ab"), token("<<abc"), token("abc>>"), token("c>>>"), token("\n\n\n\n")]),
                        ("of both orders", [token("<<ab"), token("abc>>", normalized=False), token("c>>>")]),
                        ("that the vocabulary has", [token("ab")]),
                        ("lstrip", [token("AT&T", lstrip=True)]), ("rstrip", [token("AT&T", rstrip=True)]),
                        ("single_word", [token("AT&T", single_word=True)])):
        yield f"added tokens, {name}", made(split((r"(?<=a)b|^.|.+",)), added=added)
        yield f"added tokens, {name}, known pattern", made(split((KNOWN[0],)), added=added)
    for name, model in (("ignore_merges", {"ignore_merges": True}), ("byte_fallback", {"byte_fallback": True}),
                        ("dropout", {"dropout": 0.5}), ("dropout 0", {"dropout": 0.0}), ("fuse_unk", {"fuse_unk": True})):
        yield f"model {name}", made(split((KNOWN[0],)), **model)
    post = made(split((KNOWN[0],)))
    post.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", len(vocab))])
    yield "post-processor", post


class Vocabulary:
    """Bytes, and tokens of two and three bytes that show where a text is cut."""

    def __init__(self, rng, texts):
        pairs = {text.encode()[i:i + n] for text in texts for n in (2, 3) for i in range(len(text.encode()) - n + 1)}
        rest = sorted(pairs)
        rng.shuffle(rest)
        rest.sort(key=len)
        self.ranks = {bytes([byte]): byte for byte in range(256)}
        for token in rest:
            if len(token) == 2 or token[:2] in self.ranks:
                self.ranks.setdefault(token, len(self.ranks))
        letters = list(check_tokenizers.alphabet())
        word = {token: "".join(letters[byte] for byte in token) for token in self.ranks}
        self.of_json = ({word[t]: r for t, r in self.ranks.items()},
                        [(word[t[:-1]], word[t[-1:]]) for t in self.ranks if len(t) > 1])

    def write_ranks(self, path):
        path.write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in self.ranks.items()))


class Check:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.counts = {}
        self.failed = False

    def texts(self, texts):
        self.asked = texts
        self.file = self.folder / "texts.jsonl"
        self.file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def run(self, *words):
        return subprocess.run([self.program, "tokenizer", *words], capture_output=True, check=False)

    def note(self, kind, name, result, texts=0, detail=""):
        """Counts a result: same, refused, gave up or WRONG."""
        entry = self.counts.setdefault(kind, {"same": 0, "refused": 0, "gave up": 0, "WRONG": 0, "texts": 0})
        entry[result] += 1
        entry["texts"] += texts
        self.failed |= result == "WRONG"
        if result == "WRONG" or detail:
            print(f"{result} {kind}: {name}: {detail}", file=sys.stderr, flush=True)

    def compare(self, kind, name, tokenizer, encode):
        run = self.run("encode", self.file, "--tokenizer", tokenizer)
        if b"gives up on a text" in run.stderr:  # tokenizers does so by a panic
            return self.note(kind, name, "gave up", detail=run.stderr.decode()[-200:].strip())
        if run.returncode == 2 and not run.stdout:
            return self.note(kind, name, "refused", detail=run.stderr.decode().strip())
        if run.returncode != 0:
            return self.note(kind, name, "WRONG", detail=f"exit code {run.returncode}: {run.stderr.decode()}")
        ours = [[int(word) for word in line.split()] for line in run.stdout.decode().split("\n")[:-1]]
        try:
            theirs = encode(self.asked)
        except BaseException as error:  # pylint: disable=broad-except
            return self.note(kind, name, "WRONG", detail=f"the package fails: {error!r}"[:200])
        differ = [i for i in range(len(self.asked)) if ours[i] != theirs[i]]
        if not differ:
            return self.note(kind, name, "same", len(self.asked))
        i = min(differ, key=lambda i: len(self.asked[i]))
        return self.note(kind, name, "WRONG", len(self.asked),
                         f"{len(differ)} texts, such as {self.asked[i]!r}: {ours[i][:20]}, right {theirs[i][:20]}")

    def by_tokenizers(self, kind, name, theirs):
        path = self.folder / "tokenizer.json"
        if isinstance(theirs, str):  # the package refuses this pattern; `theirs` is its name
            plain = path.read_text()
            path.write_text(plain.replace(json.dumps(KNOWN[0])[1:-1], json.dumps(name)[1:-1]))
            assert path.read_text() != plain
            return self.compare(kind, name, path, None)
        theirs.save(str(path))
        return self.compare(kind, name, path,
                            lambda texts: [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)])

    def by_tiktoken(self, kind, pattern, vocabulary, ranks):
        written = self.folder / "written.json"
        run = self.run("convert", ranks, "--pattern", pattern, "--special", "<|endoftext|>=1000000", "--out", written)
        if run.returncode == 2:
            return self.note(kind, pattern, "refused", detail=run.stderr.decode().strip() if kind != "random" else "")
        if run.returncode != 0:
            return self.note(kind, pattern, "WRONG", detail=run.stderr.decode())
        try:
            theirs = tiktoken.Encoding("checked", pat_str=pattern, mergeable_ranks=vocabulary.ranks, special_tokens={})
        except BaseException as error:  # pylint: disable=broad-except
            return self.note(kind, pattern, "WRONG", detail=f"tiktoken refuses it: {error!r}"[:200])
        self.compare(kind, pattern, written, lambda texts: [theirs.encode_ordinary(text) for text in texts])
        written_is = tokenizers.Tokenizer.from_file(str(written))
        return self.compare(kind + ", by tokenizers", pattern, written,
                            lambda texts: [e.ids for e in written_is.encode_batch(texts, add_special_tokens=False)])


def all_characters(rng):
    """All characters of Python's version of Unicode, 64 per text."""
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    rng.shuffle(known)
    return ["".join(known[i:i + 64]) for i in range(0, len(known), 64)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=100_000, help="random texts for each form and pattern")
    parser.add_argument("--patterns", type=int, default=2000, help="random patterns, 1,000 texts each")
    parser.add_argument("--only", default="", help="only one kind: json, tiktoken, random or characters")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    rng = random.Random(1)
    texts = [text for text in check_tokenizers.SAMPLES if len(text) < 1000 and "<|endoftext|>" not in text]
    texts += [random_text(rng) for _ in range(arguments.random)]
    vocabulary = Vocabulary(rng, texts[:20_000])
    with tempfile.TemporaryDirectory() as folder:
        check = Check(arguments.program.resolve(), pathlib.Path(folder))
        ranks = check.folder / "ranks.tiktoken"
        vocabulary.write_ranks(ranks)
        check.texts(texts)
        if arguments.only in ("", "json"):
            for name, theirs in forms_of_tokenizer_json(vocabulary.of_json):
                check.by_tokenizers("tokenizer.json", name, theirs)
        if arguments.only in ("", "tiktoken"):
            for pattern in TIKTOKEN + REFUSED_OF_TIKTOKEN:
                check.by_tiktoken("tiktoken", pattern, vocabulary, ranks)
        check.texts(texts[:1000])
        if arguments.only in ("", "random"):
            for _ in range(arguments.patterns):
                check.by_tiktoken("random", random_pattern(rng), vocabulary, ranks)
        if arguments.only in ("", "characters"):
            check.texts(all_characters(rng))
            source = (pathlib.Path(__file__).parent.parent / "data/tokenizer/fancy_pattern.cpp").read_text()
            names = source[source.index("kProperties ="):source.index(";", source.index("kProperties ="))].split('"')[1::2]
            for entry in "".join(names).split():
                check.by_tiktoken("characters", r"\p{" + entry.split("=")[0] + "}", vocabulary, ranks)
            for pattern in (r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", r"[^\W\d]", r"[[:graph:]]", r"(?i)[k-s]", r".", r"\P{L}",
                            r"[\w&&[^\p{Han}]]", r"(?i)[^k-s]"):
                check.by_tiktoken("characters", pattern, vocabulary, ranks)
    print(json.dumps(check.counts, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps({
            "date": datetime.date.today().isoformat(),
            "command": f"scripts/check_split_patterns.py --random {arguments.random} --patterns {arguments.patterns} muograph",
            **{name: importlib.metadata.version(name) for name in ("tokenizers", "tiktoken")},
            "python_unicode": unicodedata.unidata_version, "results": check.counts}, indent=1) + "\n")
    return check.failed


if __name__ == "__main__":
    sys.exit(main())
