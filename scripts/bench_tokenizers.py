#!/usr/bin/env python3
"""Measures bytes of text that one core encodes per second with GPT-2's vocabulary: ours, tokenizers' and tiktoken's, in
alternation; with --train, also the time all cores take to train a vocabulary of 32,768 on JSON Lines, compared with
tokenizers and rustbpe.
  scripts/bench_tokenizers.py [--rounds N] [--train TEXTS.jsonl] [--out FILE.json] BUILD TOKENIZER TEXT
BUILD is the folder of a release build. TOKENIZER is GPT-2's as a tokenizer.json; or a SentencePiece model (NAME.model),
compared only with the package sentencepiece, with each line of TEXT as a text.
Needs: pip install tokenizers tiktoken rustbpe, or sentencepiece."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import check_tokenizers

os.environ["TOKENIZERS_PARALLELISM"] = "false"


# Each runs in a new process, because one of them uses all cores only if nothing was encoded before.
LEARN = {
    "tokenizers": """
import sys, json, time
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
texts = [json.loads(line)["text"] for line in open(sys.argv[1])]
start = time.time()
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(sys.argv[2]), "isolated"),
                                           pre_tokenizers.ByteLevel(False, use_regex=False)])
t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=32759, show_progress=False,
                                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
print(time.time() - start)""",
    "rustbpe": """
import sys, json, time, rustbpe
texts = [json.loads(line)["text"] for line in open(sys.argv[1])]
start = time.time()
rustbpe.Tokenizer().train_from_iterator(iter(texts), 32759, pattern=sys.argv[2])
print(time.time() - start)"""}
NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+")


def learn(build, texts, rounds):
    """Seconds of training; ours include reading the file and writing the tokenizer, theirs exclude reading."""
    environment = dict(os.environ)
    del environment["TOKENIZERS_PARALLELISM"]
    seconds = {name: [] for name in ("ours", *LEARN)}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            start = time.time()
            subprocess.run([f"{build}/muograph", "tokenizer", "train", "--data", texts, "--vocab-size", "32768", "--out",
                            f"{folder}/t.json"], check=True, capture_output=True)
            seconds["ours"].append(time.time() - start)
            for name, program in LEARN.items():
                run = subprocess.run([sys.executable, "-c", program, texts, NANOCHAT], check=True, capture_output=True,
                                     env=environment)
                seconds[name].append(float(run.stdout))
    return seconds


def bpe_calls(path, text):
    """Functions that encode the text, by package."""
    import tiktoken
    import tokenizers
    from tiktoken_ext.openai_public import r50k_pat_str
    pieces = [text[i:i + 16384] for i in range(0, len(text), 16384)]  # the packages are slower on one long text
    hugging = tokenizers.Tokenizer.from_file(path)
    letters = check_tokenizers.alphabet()
    vocab = {bytes(letters[c] for c in token): rank for token, rank in hugging.get_vocab().items()
             if token != "<|endoftext|>"}
    tik = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=vocab, special_tokens={})
    return {"tokenizers": lambda: hugging.encode_batch_fast(pieces, add_special_tokens=False),
            "tiktoken": lambda: [tik.encode_ordinary(piece) for piece in pieces]}


def sentencepiece_call(path, text):
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    lines = text.split("\n")
    return {"sentencepiece": lambda: [model.encode(line) for line in lines]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("tokenizer")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train", help="JSON Lines with a field text")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    text = arguments.text.read_text()
    size = len(text.encode())
    is_model = arguments.tokenizer.endswith(".model")
    environment = dict(os.environ, MUO_BENCH_TOKENIZER=arguments.tokenizer, MUO_BENCH_TEXT=str(arguments.text))
    if is_model:
        environment["MUO_BENCH_LINES"] = "1"

    def ours():
        out = subprocess.run([f"{arguments.build}/tokenizer_bench", "--benchmark_format=json", "--benchmark_min_time=1"], env=environment,
                             capture_output=True, check=True).stdout
        return json.loads(out)["benchmarks"][0]["cpu_time"] * 1e-3

    def timed(call):
        start = time.process_time()
        call()
        return time.process_time() - start

    runs = {"ours": ours, "ours again": ours}
    for name, call in (sentencepiece_call if is_model else bpe_calls)(arguments.tokenizer, text).items():
        runs[name] = lambda call=call: timed(call)
    rates = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            rates[name].append(size / run() * 1e-6)
    median = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {name: statistics.median(a / b for a, b in zip(rates["ours"], rates[name])) for name in runs}
    for name in runs:
        print(f"{name:12} {median[name]:6.1f} MB/s of processor time; ours over it {ratios[name]:.2f}")
    seconds = learn(arguments.build, arguments.train, min(3, arguments.rounds)) if arguments.train else {}
    for name, values in seconds.items():
        print(f"{name:12} {statistics.median(values):6.1f} s to learn 32,768 tokens")
    if arguments.out:
        arguments.out.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "cpu": next(
                (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine()),
            "command": f"scripts/bench_tokenizers.py --rounds {arguments.rounds} " +
                       ("--train TEXTS.jsonl " if arguments.train else "") +
                       f"build/release {pathlib.Path(arguments.tokenizer).name} TEXT",
            "text": f"{size} bytes of documentation, scripts and headers of a Debian system",
            "versions": check_tokenizers.versions_of([name for name in runs if not name.startswith("ours")]),
            "mb_per_s": rates, "ours_over": ratios,
            "seconds_to_learn_32768": seconds, "bytes_to_learn_from": os.path.getsize(arguments.train) if arguments.train
            else 0, "cores": os.cpu_count()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
