#!/usr/bin/env python3
"""Measures nanochat's training step on this GPU, compiled as by nanochat's base_train.py, on random tokens already in
memory (so the data loader costs nothing); for scripts/gpu_check.py.
  scripts/peer_nanochat_gpu.py --checkout DIR --depth 12 --rows 32 --length 2048 --vocabulary 32768 \\
      --tokens 524288 --seconds 40
Writes a line of JSON to standard output as each step ends, then a line with the medians. MFU follows nanochat's formula
and table of peaks. `attention` is the implementation that nanochat found: FlashAttention-3 would have to be downloaded,
which this script does not do."""
import argparse
import contextlib
import gc
import io
import json
import os
import statistics
import sys
import time

os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # as in nanochat, before importing torch
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402

from gpu_power import PowerMeter  # noqa: E402

WARM_UP, UPDATES, MOST_STEPS = 3, 3, 40


def say(row):
    print(json.dumps(row), flush=True)


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
        model.to_empty(device=size["device"])
        model.init_weights()
        optimizer = model.setup_optimizer()
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * group["initial_lr"]  # for a small batch
    return model, optimizer


class Steps:
    def __init__(self, arguments):
        self.device = torch.device(arguments.device)
        self.cuda = self.device.type == "cuda"
        self.model, self.optimizer = nanochat(
            {"checkout": arguments.checkout, "length": arguments.length, "layers": arguments.depth,
             "vocabulary": arguments.vocabulary, "heads": arguments.depth * 64 // arguments.head,
             "width": arguments.depth * 64, "window_pattern": "SSSL", "device": self.device})
        self.compiled = torch.compile(self.model, dynamic=False)
        self.micro_steps = arguments.tokens // (arguments.rows * arguments.length)
        shape = (arguments.rows, arguments.length + 1)
        self.batches = [torch.randint(arguments.vocabulary, shape, device=self.device)
                        for _ in range(self.micro_steps)]

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def run(self, time_update=False):
        """Seconds of a step and, with `time_update`, of its update, measured after synchronizing the device."""
        self.synchronize()
        begin = time.perf_counter()
        for tokens in self.batches:
            loss = self.compiled(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            (loss / self.micro_steps).backward()
        if time_update:
            self.synchronize()
        updating = time.perf_counter()
        self.optimizer.step()
        self.model.zero_grad(set_to_none=True)
        loss = loss.item()
        self.synchronize()
        end = time.perf_counter()
        return {"seconds": end - begin, "loss": loss,
                **({"update_s": end - updating} if time_update else {})}


def attention_of_nanochat():
    from nanochat.flash_attention import USE_FA3
    return "FlashAttention-3" if USE_FA3 else "scaled_dot_product_attention, windows by a mask"


def measure(arguments):
    torch.manual_seed(42)
    torch.set_float32_matmul_precision("high")
    steps = Steps(arguments)
    facts = {"benchmark": "nanochat", "depth": arguments.depth, "rows": arguments.rows,
             "tokens_per_step": arguments.tokens, "torch": torch.__version__,
             "attention": attention_of_nanochat(),
             "parameters": sum(p.numel() for p in steps.model.parameters())}
    say(facts)
    begin = time.perf_counter()
    for _ in range(WARM_UP):
        say({"warm_up": True, **steps.run()})
    facts["warm_up_s"] = time.perf_counter() - begin
    gc.collect()
    gc.freeze()
    gc.disable()  # as in nanochat
    power = PowerMeter(torch.cuda.get_device_properties(0).uuid if steps.cuda else "none")
    power.start()
    begin, times = time.perf_counter(), []
    while len(times) < MOST_STEPS and (not times or time.perf_counter() - begin < arguments.seconds):
        row = steps.run()
        say(row)
        times.append(row["seconds"])
        power.sample()
    use = power.take()
    updates = [steps.run(time_update=True)["update_s"] for _ in range(UPDATES)]
    seconds = statistics.median(times)
    facts.update(steps=len(times), step_ms=1e3 * seconds, tokens_per_s=arguments.tokens / seconds,
                 update_ms=1e3 * statistics.median(updates), **use)
    if use:
        facts["joules_per_step"] = use["watts"] * seconds
    if steps.cuda:
        from nanochat.common import get_peak_flops
        name = torch.cuda.get_device_name(0)
        rate = steps.model.estimate_flops() * facts["tokens_per_s"]
        facts.update(device=name, mfu=rate / get_peak_flops(name),
                     peak_allocated_mib=torch.cuda.max_memory_allocated() / 2**20,
                     peak_reserved_mib=torch.cuda.max_memory_reserved() / 2**20)
    say(facts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--head", type=int, default=128)
    for name in ("depth", "rows", "length", "vocabulary", "tokens", "seconds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.checkout):
        sys.exit(f"{arguments.checkout}: no checkout of nanochat was packed: "
                 "scripts/gpu_pack.sh --nanochat DIR")
    if arguments.tokens % (arguments.rows * arguments.length):
        sys.exit(f"--tokens {arguments.tokens} is not a multiple of --rows times --length")
    measure(arguments)


if __name__ == "__main__":
    main()
