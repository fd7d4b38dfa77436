#!/usr/bin/env python3
"""Bytes of text that one core encodes per second with GPT-2's vocabulary: ours, tokenizers' and tiktoken's, in turns.
  scripts/bench_tokenizers.py [--rounds N] [--out FILE.json] BENCH GPT2.json TEXT
BENCH is tokenizer_bench of a release build. Needs: pip install tokenizers tiktoken."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tiktoken
import tokenizers
from tiktoken_ext.openai_public import r50k_pat_str


def alphabet():
    out, extra = {}, 0x100
    for byte in range(256):
        prints = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        out[chr(byte if prints else extra)] = byte
        extra += not prints
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("tokenizer")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    text = arguments.text.read_text()
    size = len(text.encode())
    pieces = [text[i:i + 16384] for i in range(0, len(text), 16384)]  # the others are slower on one long text
    hugging = tokenizers.Tokenizer.from_file(arguments.tokenizer)
    letters = alphabet()
    vocab = {bytes(letters[c] for c in token): rank for token, rank in hugging.get_vocab().items()
             if token != "<|endoftext|>"}
    tik = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=vocab, special_tokens={})
    environment = dict(os.environ, MUO_BENCH_TOKENIZER=arguments.tokenizer, MUO_BENCH_TEXT=str(arguments.text))

    def ours():
        out = subprocess.run([arguments.bench, "--benchmark_format=json", "--benchmark_min_time=1"], env=environment,
                             capture_output=True, check=True).stdout
        return json.loads(out)["benchmarks"][0]["cpu_time"] * 1e-3

    def timed(call):
        start = time.process_time()
        call()
        return time.process_time() - start

    runs = {"ours": ours, "ours again": ours,
            "tokenizers": lambda: timed(lambda: hugging.encode_batch_fast(pieces, add_special_tokens=False)),
            "tiktoken": lambda: timed(lambda: [tik.encode_ordinary(piece) for piece in pieces])}
    rates = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            rates[name].append(size / run() * 1e-6)
    median = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {name: statistics.median(a / b for a, b in zip(rates["ours"], rates[name])) for name in runs}
    for name in runs:
        print(f"{name:12} {median[name]:6.1f} MB/s of processor time; ours over it {ratios[name]:.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "cpu": next(
                (l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine()),
            "command": f"scripts/bench_tokenizers.py --rounds {arguments.rounds} tokenizer_bench gpt2.json TEXT",
            "text": f"{size} bytes of documentation, scripts and headers of a Debian system",
            "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__},
            "mb_per_s": rates, "ours_over": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
