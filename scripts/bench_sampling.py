#!/usr/bin/env python3
"""Compares tokens per second of nanochat's sampling engine with ours, in alternation: d6, fp32, one row, on a CPU.

Both decode from a cache filled with a given number of tokens; prints medians over the rounds as JSON.
  scripts/bench_sampling.py NANOCHAT build/release/sample_bench [--threads 2] [--rounds 5] [--out FILE]
NANOCHAT is a clone of karpathy/nanochat, which needs PyTorch. Our decoder uses one thread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import types

TOKENS = 64  # per measurement
CONTEXTS = (200, 900)


class Tokenizer:
    """Special ids that are never sampled: the model has only 32,768 ids."""

    def encode_special(self, _name):
        return -1

    def get_bos_token_id(self):
        return -1


def make_engine(clone):
    sys.path.insert(0, clone)
    # nanochat.engine imports a checkpoint loader, whose packages sampling does not need.
    sys.modules["nanochat.checkpoint_manager"] = types.SimpleNamespace(load_model=None)
    os.environ["NANOCHAT_DTYPE"] = "float32"
    import torch
    from nanochat.engine import Engine
    from nanochat.gpt import GPT, GPTConfig

    config = GPTConfig(sequence_len=1024, vocab_size=32768, n_layer=6, n_head=3, n_kv_head=3, n_embd=384)
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device="cpu")
    model.init_weights()
    model.eval()
    return Engine(model, Tokenizer())


def nanochat_rate(engine, context):
    """Tokens per second; the prompt is not counted, as the clock starts at the first token."""
    stream = engine.generate([1] * context, max_tokens=TOKENS + 1, temperature=0.8)
    next(stream)
    start = time.perf_counter()
    count = sum(1 for _ in stream)
    assert count == TOKENS
    return TOKENS / (time.perf_counter() - start)


def our_rates(program):
    """Our tokens per second by context length."""
    output = subprocess.run(
        [program, "--benchmark_filter=^step/fp32/depth:6/rows:1/", "--benchmark_format=json"],
        check=True, capture_output=True, text=True).stdout
    return {int(run["name"].split("context:")[1].split("/")[0]): run["tokens/s"]
            for run in json.loads(output)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanochat")
    parser.add_argument("sample_bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()
    engine = make_engine(args.nanochat)
    import torch

    torch.set_num_threads(args.threads)
    rates = {(name, context): [] for name in ("nanochat", "muograph", "muograph again") for context in CONTEXTS}
    for round_ in range(args.rounds + 1):
        for name in ("nanochat", "muograph", "muograph again"):
            ours = our_rates(args.sample_bench) if name != "nanochat" else {}
            for context in CONTEXTS:
                rate = ours[context] if ours else nanochat_rate(engine, context)
                if round_ > 0:  # the first round is a warm-up
                    rates[name, context].append(rate)
    median = {key: statistics.median(values) for key, values in rates.items()}
    result = {
        "command": "scripts/bench_sampling.py " + f"NANOCHAT {args.sample_bench} --threads {args.threads} --rounds {args.rounds}",
        "torch": torch.__version__, "threads": {"nanochat": args.threads, "muograph": 1},
        "contexts": [{
            "context": context,
            "tokens_per_s": {name: round(median[name, context], 1) for name in ("nanochat", "muograph")},
            "ratio": round(median["muograph", context] / median["nanochat", context], 2),
            "a_a": round(median["muograph again", context] / median["muograph", context], 3),
        } for context in CONTEXTS]}
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
