#!/usr/bin/env python3
"""Writes small tokenizers with the normalizers, patterns, added tokens and options of public ones to a folder, with
vocabularies trained by the package tokenizers on local texts: for tokenizer_bench, and comparisons of ids.
  scripts/golden/make_public_tokenizers.py FOLDER
Needs: pip install tokenizers."""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, models, trainers

import tokenizer_texts

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
NO_WORD, REST = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = f"{NO_WORD}{UPPER}*{LOWER}+{SUFFIX}|{NO_WORD}{UPPER}+{LOWER}*{SUFFIX}|\\p{{N}}{{1,3}}|{REST}"
TEKKEN = f"{NO_WORD}{UPPER}*{LOWER}+|{NO_WORD}{UPPER}+{LOWER}*|\\p{{N}}|{REST}"
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
SPACES = [" " * n for n in range(24, 1, -1)]


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def form(*parts, normalizer=None, special=("<|endoftext|>",), literals=(), normalized=(), by_gpt2=False, **model):
    return {"parts": [*parts, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": by_gpt2}],
            "normalizer": normalizer and {"type": normalizer}, "model": model,
            "added": [(text, False, True) for text in special] + [(text, False, False) for text in literals] +
                     [(text, True, False) for text in normalized]}


FORMS = {
    "gpt2": form(by_gpt2=True),
    "gpt4": form(split(GPT4, "Removed", True)),
    "gpt4o": form(split(GPT4O, "Removed", True)),
    "llama3": form(split(GPT4), special=["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True),
    "qwen2.5": form(split(GPT4.replace("{1,3}", "")), normalizer="NFC", special=["<|endoftext|>", "<|im_start|>"],
                    literals=["<tool_call>", "</tool_call>", "<|fim_prefix|>"]),
    "gpt_neox": form(normalizer="NFC", normalized=SPACES, special=["<|endoftext|>", "<|padding|>"], by_gpt2=True),
    "modernbert": form(normalizer="NFC", normalized=["|||IP_ADDRESS|||", *SPACES], special=["[CLS]", "[SEP]"], by_gpt2=True),
    "deepseek3": form(*map(split, DEEPSEEK), special=["<｜begin▁of▁sentence｜>"], literals=["<think>", "</think>"]),
    "starcoder2": form({"type": "Digits", "individual_digits": True}, by_gpt2=True),
    "phi2": form(normalized=[*SPACES, "\t\t", "\t\t\t"], by_gpt2=True),
    "tekken": form(split(TEKKEN), special=["<s>", "[INST]"]),
    "bloom": form(split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), special=["<s>", "<pad>"]),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    rng = random.Random(5)
    texts = [file.read_text() for file in sorted(pathlib.Path(__file__).resolve().parent.parent.parent.glob("docs/*.md"))]
    texts += tokenizer_texts.SAMPLES + [tokenizer_texts.random_text(rng) for _ in range(3000)]
    for name, kind in FORMS.items():
        tokenizer = Tokenizer(models.BPE())
        file = json.loads(tokenizer.to_str())
        file |= {"normalizer": kind["normalizer"], "pre_tokenizer": {"type": "Sequence", "pretokenizers": kind["parts"]}}
        tokenizer = Tokenizer.from_str(json.dumps(file))
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=2000, show_progress=False, initial_alphabet=list(tokenizer_texts.alphabet())))
        file = json.loads(tokenizer.to_str())
        first = len(file["model"]["vocab"])
        file["added_tokens"] = [
            {"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": normalized, "special": special} for i, (text, normalized, special) in enumerate(kind["added"])]
        file["model"] |= kind["model"]
        (folder / f"{name}.json").write_text(json.dumps(file))


if __name__ == "__main__":
    main()
