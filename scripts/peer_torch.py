#!/usr/bin/env python3
"""Runs training steps in PyTorch on the CPU on request, for scripts/bench_peers.py: each line of standard input names a
mode, eager or compiled, and is answered by a line of JSON. The only argument is a JSON object with the model, its sizes
and, for nanochat, a checkout; NANOCHAT_DTYPE is nanochat's own variable."""
import contextlib
import gc
import io
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

ROPE_BASE = 100000.0


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1)


class PlainBlock(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values, self.mixed = (
            torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.widen = torch.nn.Linear(width, 4 * width, bias=False)
        self.narrow = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cos, sin):
        normed = F.rms_norm(x, x.shape[-1:])
        q, k, v = (layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for layer in (self.queries, self.keys, self.values))
        q, k = (F.rms_norm(rotated(h, cos, sin), h.shape[-1:]) for h in (q, k))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mixed(attended.transpose(1, 2).flatten(-2))
        return x + self.narrow(F.relu(self.widen(F.rms_norm(x, x.shape[-1:]))).square())


class PlainGPT(torch.nn.Module):
    """muograph's plain GPT without the soft-cap on logits, so that PyTorch saves fewer activations."""

    def __init__(self, size):
        super().__init__()
        width, heads = size["width"], size["heads"]
        self.embedding = torch.nn.Embedding(size["vocabulary"], width)
        self.blocks = torch.nn.ModuleList(PlainBlock(width, heads) for _ in range(size["layers"]))
        self.head = torch.nn.Linear(width, size["vocabulary"], bias=False)
        torch.nn.init.normal_(self.head.weight, std=0.001)
        pairs = torch.arange(0, width // heads, 2) / (width // heads)
        angles = torch.outer(torch.arange(size["length"]), ROPE_BASE ** -pairs)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = F.rms_norm(self.embedding(tokens), self.head.weight.shape[-1:])
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(F.rms_norm(x, x.shape[-1:]))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Optimizers:
    """muograph's assignment of weights: Muon for the layers' matrices, AdamW for the rest."""

    def __init__(self, model):
        self.all = (torch.optim.Muon(model.blocks.parameters(), lr=0.02),
                    torch.optim.AdamW([model.embedding.weight, model.head.weight], lr=1e-3))

    def step(self):
        for optimizer in self.all:
            optimizer.step()


def plain(size):
    model = PlainGPT(size)
    return model, Optimizers(model)


def nanochat(size):
    """nanochat's model and optimizer, created as in its training script."""
    sys.path.insert(0, size["checkout"])
    sys.dont_write_bytecode = True
    with contextlib.redirect_stdout(io.StringIO()):
        from nanochat.gpt import GPT, GPTConfig
        with torch.device("meta"):
            model = GPT(GPTConfig(
                sequence_len=size["length"], vocab_size=size["vocabulary"], n_layer=size["layers"],
                n_head=size["heads"], n_kv_head=size["heads"], n_embd=size["width"],
                window_pattern=size["window_pattern"]))
        model.to_empty(device=size.get("device", "cpu"))
        model.init_weights()
        optimizer = model.setup_optimizer()
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * group["initial_lr"]  # for a small batch
    return model, optimizer


def main(size):
    torch.manual_seed(42)
    torch.set_num_threads(size["threads"])
    model, optimizer = {"plain": plain, "nanochat": nanochat}[size["model"]](size)
    modes = {"eager": model, "compiled": torch.compile(model, dynamic=False)}
    micro_steps = size["micro_steps"]
    source = pathlib.Path(sys.modules[type(model).__module__].__file__)
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(),
                      "model_source": source.name,
                      "parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    gc.disable()  # as in nanochat
    for line in sys.stdin:
        mode = modes[line.strip()]
        batches = torch.randint(size["vocabulary"], (micro_steps, size["rows"], size["length"] + 1))
        start = time.perf_counter()
        losses = 0.0
        for tokens in batches:
            loss = mode(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) / micro_steps
            loss.backward()
            losses += loss.detach()
        computed = time.perf_counter()
        optimizer.step()
        model.zero_grad(set_to_none=True)
        end = time.perf_counter()
        print(json.dumps({"seconds": end - start, "update": end - computed,
                          "loss": losses.item()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
