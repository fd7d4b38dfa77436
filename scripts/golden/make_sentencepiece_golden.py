#!/usr/bin/env python3
"""Writes tests/golden/sentencepiece/ and the good models of tests/fuzz/corpus/sentencepiece/: small SentencePiece
models trained on README.md and some texts, the package's ids of texts, and its texts of ids (omitted if decoding
returns the encoded text). Texts that are not UTF-8 are in hexadecimal digits; for very long ones there are the number
of ids and the CRC-32 of their digits. Texts with several best encodings by a unigram model are omitted, because the
choice depends on the package's version.
  scripts/golden/make_sentencepiece_golden.py
Needs: pip install sentencepiece, and Debian's zstd."""
import io
import json
import pathlib
import random
import subprocess
import tempfile
import zlib

import sentencepiece

import tokenizer_texts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SYMBOLS = ["<start_of_turn>", "<start_of_turn>user", "\n\n", "▁▁", "▁▁▁▁", "»"]
MODELS = {  # like T5's, Llama 2's and Gemma's, and with features that these lack
    "t5": dict(model_type="unigram", vocab_size=500, normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1, unk_id=2,
               bos_id=-1),
    "llama": dict(model_type="bpe", vocab_size=600, normalization_rule_name="identity", byte_fallback=True,
                  remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True),
    "gemma": dict(model_type="bpe", vocab_size=600, normalization_rule_name="identity", byte_fallback=True,
                  add_dummy_prefix=False, remove_extra_whitespaces=False, user_defined_symbols=SYMBOLS, pad_id=0, eos_id=1,
                  bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>", control_symbols=["<mask>"]),
    "unigram_bytes": dict(model_type="unigram", vocab_size=450, normalization_rule_name="identity", byte_fallback=True,
                          user_defined_symbols=SYMBOLS[:3]),
    "suffix": dict(model_type="unigram", vocab_size=300, normalization_rule_name="identity", unk_surface="?",
                   treat_whitespace_as_suffix=True),
    "bpe": dict(model_type="bpe", vocab_size=300, normalization_rule_name="identity", add_dummy_prefix=False),
    "char": dict(model_type="char", vocab_size=200, normalization_rule_name="identity"),
    "word": dict(model_type="word", vocab_size=100, normalization_rule_name="identity", hard_vocab_limit=False),
}
MORE = [
    "▁ written ▁▁ out", "<s>a</s> <unk> <pad><bos><mask> <0x41><0xE4>", "a<start_of_turn>user\n\n\n b<start_of_turn>", "» «»»",
    "\ttab  and   spaces    \n\n", "a\u0000b", "\ufeffBOM", "Ａｂｃ １２３ ｶﾞ ﷺ ﬃ ①②", "\u00a0\u2003x\u3000", "१२३ abc", "\ufffd",
]
NOT_UTF8 = [
    b"\xff", b"a\xffb", b"\xe4\xb8", b"\xe4\xb8\xe4\xb8\xad", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xf0\x9f\x91",
    b" \x80\x80 ", b"\xf0\x9f \xf0\x9f\x91\x8d\xbf", b"caf\xc3", b"\xfe\xfe\xff\xff<start_of_turn>\xc3\xa9",
]
LONG = [  # (text, repetitions); the last three are only for BPE, as they are full of ties
    ("word and ", 3000), ("中", 5000), (" ", 20000), ("👍🏽", 2000), ("a\n\n", 5000), ("x", 20000), ("\n", 20000), ("7", 9000)]


def is_tied(model, text):
    scores = [sum(map(model.get_score, ids)) for ids in model.nbest_encode(text, nbest_size=2, out_type=int)]
    return len(scores) > 1 and abs(scores[0] - scores[1]) < 1e-3


def train(texts, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, minloglevel=2, num_threads=1,
                                             character_coverage=0.98, **options)
    return model.getvalue()


def write_corpus(texts):
    corpus = ROOT / "tests/fuzz/corpus/sentencepiece"
    corpus.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for replaced, by in ("ﬃ", "ffi"), ("ﬀ", "ff"), ("aa", "a"), ("aab", "b"), ("½", "1/2"), ("\t", " "):
            rules.write(" ".join(f"{ord(c):X}" for c in replaced) + "\t" + " ".join(f"{ord(c):X}" for c in by) + "\n")
        rules.flush()
        model = train(texts, model_type="unigram", vocab_size=120, normalization_rule_tsv=rules.name, bos_id=-1)
        (corpus / "good_unigram_rules").write_bytes(model)
    (corpus / "good_bpe_bytes").write_bytes(train(texts, model_type="bpe", vocab_size=380, byte_fallback=True,
                                                  normalization_rule_name="identity", user_defined_symbols=["\n\n", "▁▁"]))


def main():
    folder = ROOT / "tests/golden/sentencepiece"
    folder.mkdir(exist_ok=True)
    rng = random.Random(11)
    texts = [text[:40] for text in tokenizer_texts.SAMPLES] + MORE + [tokenizer_texts.random_text(rng) for _ in range(4)]
    learnt = (ROOT / "README.md").read_text().splitlines() + texts * 2
    learnt = [text for text in learnt if "\0" not in text]
    write_corpus([text for text in learnt if text.isascii()])
    with (folder / "ids.jsonl").open("w") as out:
        def write(**line):
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        for name, options in MODELS.items():
            model = train(learnt, **options)
            file = folder / f"{name}.model"
            file.write_bytes(model)
            theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
            if len(model) > 100_000:  # it contains the rules of nmt_nfkc
                subprocess.run(["zstd", "-q", "--ultra", "-22", "-f", "--rm", file], check=True)
            is_unigram = options["model_type"] == "unigram"
            for text in (*(MORE if name in ("suffix", "bpe", "char", "word") else texts), *NOT_UTF8):
                if is_unigram and text and is_tied(theirs, text):
                    continue
                ids = theirs.encode(text)
                decoded = theirs.decode(ids)
                if isinstance(text, bytes):
                    write(by=name, hex=text.hex(), ids=ids, decoded=decoded)
                else:
                    write(by=name, text=text, ids=ids, **({} if decoded == text else {"decoded": decoded}))
            for text, times in LONG[:-3] if is_unigram else LONG:
                ids = theirs.encode(text * times)
                write(by=name, text=text, times=times, count=len(ids), crc32=zlib.crc32(" ".join(map(str, ids)).encode()))
            for count in (1, 2, 3, 5, 12, 12, 30):  # ids that are not the encoding of a text
                for low in (0, 3):
                    ids = [rng.choice([rng.randrange(low, 20), rng.randrange(theirs.vocab_size())]) for _ in range(count)]
                    ids = [min(i, theirs.vocab_size() - 1) for i in ids]
                    write(by=name, ids=ids, decoded=theirs.decode(ids))
            space, low = theirs.piece_to_id("▁"), 4  # the least id that is not special
            for ids in ([space, space, low], [1, space, 1, space, space], [0, space, low], [low, space, space]):
                write(by=name, ids=ids, decoded=theirs.decode(ids))
            if theirs.is_byte(10):
                byte = [theirs.piece_to_id(f"<0x{value:02X}>") for value in range(256)]
                for text in (*NOT_UTF8, "é中👍".encode(), b"\xe4\xb8\xad\xe4\xb8 \xad", b"\xf0\x9f\x91\x8d\xf0\x9f"):
                    for before in ([], [theirs.piece_to_id("▁")]):
                        ids = before + [byte[value] for value in text] + before
                        write(by=name, ids=ids, decoded=theirs.decode(ids))


if __name__ == "__main__":
    main()
