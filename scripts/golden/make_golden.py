#!/usr/bin/env python3
"""Writes tests/golden/gpt_*.safetensors: the plain GPT in float64 with autograd, an independent reference for logits,
loss and every gradient. Needs only PyTorch (any version, such as Debian's python3-torch):

    /usr/bin/python3 scripts/golden/make_golden.py            # writes the files
    /usr/bin/python3 scripts/golden/make_golden.py --check    # compares the files with a fresh computation

Weights come from Python's own generator and the computation has one thread, so a second run with the same PyTorch
writes the same bytes. tests/golden/README.md describes the files.
"""
import argparse
import json
import math
import pathlib
import random
import struct
import sys

import torch

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "golden"
EPS = 1.1920929e-7  # epsilon of the RMSNorm: fp32's machine epsilon
COMMON = dict(rope_base=100000.0, qk_scale=1.0, softcap=15.0, window_pattern="L", logits_last=0)
CONFIGS = {
    # All sizes even, two plain layers.
    "plain": dict(COMMON, vocab_size=64, n_layer=2, n_head=2, n_kv_head=2, n_embd=32, seq_len=16,
                  batch=2, t=16, logit_std=3.0),
    # Grouped queries; vocabulary and length are multiples of nothing.
    "gqa": dict(COMMON, vocab_size=101, n_layer=3, n_head=4, n_kv_head=2, n_embd=24, seq_len=37,
                batch=2, t=37, logit_std=2.0),
    # Windows 600, 256, 600 and, in the last layer, 600 instead of the pattern's 256. A short window computed from
    # the
    # run length instead of seq_len would be 128.
    "window": dict(COMMON, vocab_size=50, n_layer=4, n_head=2, n_kv_head=2, n_embd=16, seq_len=600,
                   batch=1, t=290, logit_std=5.0, window_pattern="LS", logits_last=5),
    # Logits with a standard deviation of 15 and a cap of 15; three heads share one key-value head.
    "softcap": dict(COMMON, vocab_size=67, n_layer=2, n_head=3, n_kv_head=1, n_embd=30, seq_len=23,
                    batch=3, t=23, logit_std=15.0, qk_scale=1.2),
}


def parameter_shapes(c):
    n, kv = c["n_embd"], c["n_kv_head"] * (c["n_embd"] // c["n_head"])
    padded = -(-c["vocab_size"] // 64) * 64
    shapes = {"transformer.wte.weight": (padded, n), "lm_head.weight": (padded, n)}
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        shapes.update({h + "attn.c_q.weight": (n, n), h + "attn.c_k.weight": (kv, n),
                       h + "attn.c_v.weight": (kv, n), h + "attn.c_proj.weight": (n, n),
                       h + "mlp.c_fc.weight": (4 * n, n), h + "mlp.c_proj.weight": (n, 4 * n)})
    return shapes


def random_weights(c, rng):
    """Weights unlike initial ones: projections are not zero, and logits are large. Rounded to fp32."""
    weights = {}
    for name, (rows, columns) in parameter_shapes(c).items():
        std = 1.0 / math.sqrt(columns)
        if name == "lm_head.weight":
            std *= c["logit_std"]
        values = [std * math.sqrt(3) * (2 * rng.random() - 1) for _ in range(rows * columns)]
        weights[name] = torch.tensor(values, dtype=torch.float32).reshape(rows, columns)
    return weights


def norm(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def rotate(x, base):
    """x: (b, t, heads, h); halves (x1, x2) -> (x1 cos + x2 sin, -x1 sin + x2 cos)."""
    t, h = x.shape[1], x.shape[3]
    frequency = base ** (-2.0 * torch.arange(h // 2, dtype=x.dtype) / h)
    angle = torch.outer(torch.arange(t, dtype=x.dtype), frequency)[:, None, :]
    x1, x2 = x[..., : h // 2], x[..., h // 2 :]
    return torch.cat([x1 * angle.cos() + x2 * angle.sin(), -x1 * angle.sin() + x2 * angle.cos()],
                     -1)


def window_of(c, layer):
    long, short = c["seq_len"], -(-c["seq_len"] // 4 // 128) * 128
    pattern = c["window_pattern"]
    last = layer == c["n_layer"] - 1
    return long if last or pattern[layer % len(pattern)] == "L" else short


def attention(c, weights, prefix, layer, x):
    b, t, n = x.shape
    h = n // c["n_head"]
    q, k, v = ((x @ weights[prefix + f"attn.{m}.weight"].T).reshape(b, t, -1, h)
               for m in ("c_q", "c_k", "c_v"))
    q, k = (norm(rotate(a, c["rope_base"])) * c["qk_scale"] for a in (q, k))
    group = c["n_head"] // c["n_kv_head"]
    distance = torch.arange(t)[:, None] - torch.arange(t)[None, :]
    hidden = (distance < 0) | (distance > window_of(c, layer))
    heads = []
    for a in range(c["n_head"]):
        scores = q[:, :, a] @ k[:, :, a // group].transpose(1, 2) / math.sqrt(h)
        heads.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v[:, :, a // group])
    return torch.cat(heads, -1) @ weights[prefix + "attn.c_proj.weight"].T


def forward(c, weights, inputs, targets):
    """Logits after the soft-cap (b, t, vocab) and the mean loss."""
    x = norm(weights["transformer.wte.weight"][inputs])
    for i in range(c["n_layer"]):
        prefix = f"transformer.h.{i}."
        x = x + attention(c, weights, prefix, i, norm(x))
        hidden = torch.relu(norm(x) @ weights[prefix + "mlp.c_fc.weight"].T).square()
        x = x + hidden @ weights[prefix + "mlp.c_proj.weight"].T
    logits = (norm(x) @ weights["lm_head.weight"].T)[..., : c["vocab_size"]]
    logits = c["softcap"] * torch.tanh(logits / c["softcap"])
    nats = logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]
    return logits, nats.mean()


def compute(name, c):
    """The tensors and the metadata of one file."""
    rng = random.Random(f"muograph {name}")
    stored = random_weights(c, rng)
    tokens = torch.tensor([[rng.randrange(c["vocab_size"]) for _ in range(c["t"] + 1)]
                           for _ in range(c["batch"])])
    # fp32 values, as in the trainer.
    exact = dict(c)
    for field in ("qk_scale", "softcap"):
        exact[field] = torch.tensor(c[field], dtype=torch.float32).item()
    weights = {key: w.double().requires_grad_() for key, w in stored.items()}
    logits, loss = forward(exact, weights, tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    for key, w in weights.items():
        assert w.grad.norm() > 0, f"{name}: the gradient of {key} is zero"

    # Wide elements first: every tensor is aligned to its element size.
    tensors = {"grad/" + key: w.grad for key, w in weights.items()}
    first = c["t"] - c["logits_last"] if c["logits_last"] else 0
    tensors["logits"] = logits.detach()[:, first:]
    tensors["loss"] = loss.detach()
    tensors.update({"weight/" + key: w for key, w in stored.items()})
    tensors["inputs"] = tokens[:, :-1].int()
    tensors["targets"] = tokens[:, 1:].int()
    fields = ("vocab_size", "n_layer", "n_head", "n_kv_head", "n_embd", "seq_len",
              "window_pattern", "rope_base", "qk_scale", "softcap", "batch", "t")
    metadata = {field: str(c[field]) for field in fields}
    metadata["logits_first"] = str(first)
    return tensors, metadata


def encode(tensors, metadata):
    """A safetensors file: header length, JSON header padded to 8 bytes, little-endian data."""
    types = {torch.float64: ("F64", "d"), torch.float32: ("F32", "f"), torch.int32: ("I32", "i")}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        code, letter = types[tensor.dtype]
        begin = len(data)
        data += struct.pack(f"<{tensor.numel()}{letter}", *tensor.reshape(-1).tolist())
        header[name] = dict(dtype=code, shape=list(tensor.shape), data_offsets=[begin, len(data)])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def decode(blob):
    """The tensors of encode() as flat lists."""
    (size,) = struct.unpack_from("<Q", blob)
    letters = {"F64": "d", "F32": "f", "I32": "i"}
    header = json.loads(blob[8 : 8 + size])
    metadata = header.pop("__metadata__")
    return {name: list(memoryview(blob[8 + size :])[slice(*e["data_offsets"])].cast(
        letters[e["dtype"]])) for name, e in header.items()}, metadata


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    failed = False
    for name, c in CONFIGS.items():
        path = GOLDEN / f"gpt_{name}.safetensors"
        tensors, metadata = compute(name, c)
        if not check:
            path.write_bytes(encode(tensors, metadata))
            print(f"{path.name}: {path.stat().st_size} bytes, loss {tensors['loss'].item():.6f}")
            continue
        stored, stored_metadata = decode(path.read_bytes())
        fresh, _ = decode(encode(tensors, metadata))
        # Another PyTorch may sum in another order, which changes float64 results by about 1e-15.
        same = stored_metadata == metadata and stored.keys() == fresh.keys() and all(
            math.dist(stored[key], fresh[key]) <= 1e-12 * math.hypot(*fresh[key]) for key in fresh)
        print(f"{path.name}: {'agrees' if same else 'DIFFERS'}")
        failed |= not same
    return failed


if __name__ == "__main__":
    sys.exit(main())
