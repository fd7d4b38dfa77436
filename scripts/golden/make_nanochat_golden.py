#!/usr/bin/env python3
"""Writes tests/golden/nanochat_*.safetensors: results of nanochat itself, at one commit.

    needs PyTorch 2.9.1, filelock, the needs of make_golden.py, and a checkout of nanochat at that commit:
    python scripts/golden/make_nanochat_golden.py --nanochat PATH            # writes the files
    python scripts/golden/make_nanochat_golden.py --nanochat PATH --check    # compares them

Imports nanochat's GPT and MuonAdamW and runs them on the CPU with one thread, without torch.compile; a second run with
the same PyTorch on the same CPU writes the same bytes. tests/golden/README.md describes the files.
"""
import argparse
import functools
import math
import random
import statistics
import sys

import torch

import nanochat_runs as nanochat
from make_golden import GOLDEN, decode, encode

# Our configuration of what nanochat's code has as constants.
CONSTANTS = dict(rope_base=100000.0, qk_scale=1.2, softcap=15.0, value_embeddings=1, smear=1,
                 backout=1, resid_lambdas=1, x0_lambdas=1)
MODELS = {
    # Value embeddings in layers 0 and 2; grouped queries; rows of wte so small (root mean square 1e-3) that the
    # norm's
    # epsilon matters.
    "odd": dict(vocab_size=101, n_layer=3, n_head=4, n_kv_head=2, n_embd=24, sequence_len=37,
                window_pattern="SSSL", batch=2, t=37, wte_std=1e-3),
    # Value embeddings in layers 1 and 3; windows 256, 256, 256 and 600.
    "window": dict(vocab_size=50, n_layer=4, n_head=4, n_kv_head=2, n_embd=24, sequence_len=600,
                   window_pattern="SSSL", batch=1, t=290, logits_last=5),
    # One layer, whose output is kept for backout; some targets ignored.
    "single": dict(vocab_size=64, n_layer=1, n_head=2, n_kv_head=1, n_embd=32, sequence_len=20,
                   window_pattern="SSSL", batch=3, t=20, ignored=(0, 7, 30, 47)),
}

# Windows 128, 128, 128, 160 and, in the last layer, 160 instead of the pattern's 128. Some shapes occur an odd
# number of
# times, so that two ranks need nanochat's padding.
TRAINED = dict(vocab_size=101, n_layer=5, n_head=4, n_kv_head=2, n_embd=24, sequence_len=160,
               window_pattern="SSSL")
ROWS, BATCHES, STEPS, ORDERS, CONTROLS = 8, 10, 30, 3, 8
# Learning rates above nanochat's, which are for 2^19 tokens per step and scale with the square root of the batch.
HYPER = dict(iterations=STEPS, total_batch_tokens=ROWS * TRAINED["sequence_len"], n_embd=24,
             matrix_lr=0.4, embedding_lr=0.6, unembedding_lr=0.03, scalar_lr=1.0,
             weight_decay=0.28, weight_decay_scale=1.0, warmdown_ratio=0.65, final_lr_frac=0.05)
# Two starts: nanochat's initial weights with its own warm-up, and open_projections() of them with a warm-up that
# leaves
# steps for the full rate and the warm-down.
STARTS = {"initial": dict(open=False, warmup_steps=40, keep=(0, STEPS)),
          "open": dict(open=True, warmup_steps=5, keep=(0, 1, 5, STEPS))}
SPLITS = [(1, 1), (1, 4), (2, 1), (2, 4)]  # ranks, micro-steps


def random_weight(model, name, shape):
    """Weights unlike initial ones: nothing is zero, and gates are neither closed nor fully open."""
    rng = random.Random(f"muograph {model['n_layer']} {name}")
    centre, std = 0.0, 1.0 / math.sqrt(shape[-1])
    if name == "transformer.wte.weight":
        std = model.get("wte_std", std)
    elif name == "lm_head.weight":
        std *= 3.0  # logits large enough for the cap
    elif name.endswith("lambdas") or name.endswith("lambda"):
        centre, std = {"resid_lambdas": (1.0, 0.2), "x0_lambdas": (0.3, 0.2),
                       "smear_lambda": (0.7, 0.0), "backout_lambda": (0.4, 0.0)}[name]
    values = [centre + std * math.sqrt(3) * (2 * rng.random() - 1) for _ in range(shape.numel())]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def model_config(model):
    return {key: model[key] for key in TRAINED}


def metadata_of(fields):
    fields = {("seq_len" if key == "sequence_len" else key): value
              for key, value in {**fields, **CONSTANTS}.items()}
    return {key: str(value) for key, value in fields.items()} | {"nanochat": nanochat.COMMIT}


def model_file(checkout, model):
    """A file with forward and backward results in float64."""
    rng = random.Random(f"muograph tokens {model['n_layer']}")
    tokens = torch.tensor([[rng.randrange(model["vocab_size"]) for _ in range(model["t"] + 1)]
                           for _ in range(model["batch"])])
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
    targets.view(-1)[list(model.get("ignored", ()))] = -1
    ((weights, loss, logits, gradients, terms),) = nanochat.in_process(
        checkout, "float64", nanochat.forward_backward, 1, model_config(model),
        functools.partial(random_weight, model), inputs, targets)
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float64 and gradient.norm() > 0, name
    first = model["t"] - model.get("logits_last", model["t"])
    # Wide elements first: every tensor is aligned to its element size.
    tensors = {"loss": loss} | {"terms/" + name: size for name, size in terms.items()}
    tensors |= {"logits": logits[:, first:].float()}
    tensors |= {"grad/" + name: gradient.float() for name, gradient in gradients.items()}
    tensors |= {"weight/" + name: weight for name, weight in weights.items()}
    tensors |= {"inputs": inputs.int(), "targets": targets.int()}
    shown = model_config(model) | {key: model[key] for key in ("batch", "t")}
    return tensors, metadata_of(shown | {"logits_first": first})


def walk(rng, length):
    """Tokens of which seven in eight are determined by the previous one."""
    vocab = TRAINED["vocab_size"]
    row = [rng.randrange(vocab)]
    while len(row) < length:
        row.append((row[-1] * 5 + 3) % vocab if rng.random() < 7 / 8 else rng.randrange(vocab))
    return row


def distance(a, b):
    """The relative distance over all parameters together."""
    square = sum((a[name].double() - b[name].double()).square().sum() for name in b)
    return math.sqrt(square / sum(b[name].double().square().sum() for name in b))


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def train(checkout, dtype, world, batches, runs):
    """For each run, the loss of every step over the whole batch, and the kept weights."""
    results = nanochat.in_process(checkout, dtype, nanochat.train, world, world, TRAINED, batches,
                                  HYPER, runs)
    return [([statistics.fmean(losses) for losses in zip(*(rank[i][0] for rank in results))],
             results[0][i][1]) for i in range(len(runs))]


def training_file(checkout):
    rng = random.Random("muograph training")
    length = TRAINED["sequence_len"] + 1
    batches = torch.tensor([[walk(rng, length) for _ in range(ROWS)] for _ in range(BATCHES)])
    orders = [[i for _ in range(STEPS // BATCHES) for i in rng.sample(range(BATCHES), BATCHES)]
              for _ in range(ORDERS)]
    wide, narrow = {}, {}
    for start, settings in STARTS.items():
        base = dict(settings, order=orders[0], accumulation=1)
        kept = {}
        for world, accumulation in SPLITS:
            run = base | {"accumulation": accumulation}
            ((losses, kept[world, accumulation]),) = train(checkout, "float32", world, batches,
                                                           [run])
            wide[f"{start}/losses/{world}x{accumulation}"] = doubles(losses)
        weights = kept[1, 1]
        for split, others in kept.items():  # only the order of rounding differs
            print(start, split, "from (1, 1):", " ".join(
                f"{distance(others[step], weights[step]):.1e}" for step in others))
        controls = train(checkout, "float32", 1, batches,
                         [base | {"perturbation": seed} for seed in range(1, CONTROLS + 1)])
        wide[start + "/control/losses"] = doubles([losses for losses, _ in controls])
        wide[start + "/control/weights"] = doubles(
            [[distance(others[step], weights[step]) for step in others] for _, others in controls])
        narrow |= {f"{start}/{step}/{name}": weight for step, values in weights.items()
                   for name, weight in values.items()}
    ordered = [dict(STARTS["open"], order=order, accumulation=1, keep=()) for order in orders]
    for name in ("float32", "bfloat16"):
        wide["orders/" + name] = doubles(
            [losses for losses, _ in train(checkout, name, 1, batches, ordered)])
    narrow = {name: weight for name, weight in narrow.items()
              if not (name.startswith("open/0/") and torch.equal(
                  weight, narrow[name.replace("open", "initial", 1)]))}
    narrow |= {"batches": batches.int(), "orders": torch.tensor(orders).int()}
    shown = {f"{start}_{key}": settings[key] for start, settings in STARTS.items()
             for key in ("warmup_steps", "keep")}
    return wide | narrow, metadata_of(TRAINED | HYPER | shown | {"rows": ROWS, "steps": STEPS})


# The files, and their tolerance for another PyTorch or CPU as the relative norm of a tensor's difference.
FILES = {"nanochat_" + name: (functools.partial(model_file, model=model), 1e-6)
         for name, model in MODELS.items()} | {"nanochat_training": (training_file, 1e-2)}


def agrees(stored, fresh, tolerance):
    """True if two files agree. Controls are noise; only their presence is compared."""
    (old, old_metadata), (new, new_metadata) = decode(stored), decode(fresh)
    if old_metadata != new_metadata or old.keys() != new.keys():
        return False
    return all("control/" in name or
               math.dist(old[name], new[name]) <= tolerance * math.hypot(*new[name])
               for name in new)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanochat", metavar="PATH", required=True, help="nanochat's checkout")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    if differing := nanochat.differing_files(arguments.nanochat):
        parser.error(f"{arguments.nanochat} is not nanochat {nanochat.COMMIT}: "
                     f"{', '.join(differing)} missing or different")
    failed = False
    for name, (make, tolerance) in FILES.items():
        path = GOLDEN / f"{name}.safetensors"
        blob = encode(*make(arguments.nanochat))
        if not arguments.check:
            path.write_bytes(blob)
            print(f"{path.name}: {len(blob)} bytes")
            continue
        stored = path.read_bytes()
        same = stored == blob or agrees(stored, blob, tolerance)
        print(f"{path.name}: {'identical' if stored == blob else 'agrees' if same else 'DIFFERS'}")
        failed |= not same
    return failed


if __name__ == "__main__":
    sys.exit(main())
