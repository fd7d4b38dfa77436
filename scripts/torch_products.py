#!/usr/bin/env python3
"""Measures time and energy of matrix products on this GPU, by PyTorch: first 8192^3 in bf16 for --warm seconds, which
shows the rate that this card sustains, then the products y = x w of d12, d20 and d24 in bf16 and fp8, each for --seconds.
fp8: e4m3 x e4m3 with fast and with slow accumulation, and e5m2 x e4m3, as in input gradients, with slow accumulation.
  scripts/torch_products.py [--json FILE] [--warm SECONDS] [--seconds SECONDS]"""
import argparse
import json
import os
import sys
import time

import torch

from gpu_power import PowerMeter

# Width and tokens of a micro-step.
MODELS = {"d12": (768, 65536), "d20": (1280, 32768), "d24": (1536, 32768)}
VOCABULARY = 32768
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = {"bf16": None, "e4m3_fast": (E4M3, True), "e4m3_slow": (E4M3, False), "e5m2_e4m3_slow": (E5M2, False)}
CALLS = 20  # of a graph


def product(m, k, n, form):
    """A call of y (m, n) = x (m, k) w (k, n) that writes its result to the same memory."""
    x, w = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    if FORMATS[form] is None:
        return lambda: torch.mm(x, w.T, out=y)
    kind, fast = FORMATS[form]
    x, w, one = x.to(kind), w.to(E4M3), torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(x, w.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast, out=y)


def measure(meter, run, seconds, flops):
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    graph.replay()
    torch.cuda.synchronize()
    busy, calls = 0.0, 0
    meter.start()
    while busy < seconds:
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        busy += time.perf_counter() - begin
        calls += CALLS
        meter.sample()
    row = {"us": 1e6 * busy / calls, "tflops": 1e-12 * flops * calls / busy, **meter.take()}
    if "watts" in row:
        row["joules"] = row["watts"] * busy / calls
        row["picojoules_per_flop"] = 1e12 * row["joules"] / flops
    return row


def cases(warm, seconds):
    yield "8192", 8192, 8192, 8192, "bf16", warm
    for name, (width, tokens) in MODELS.items():
        for k, n in ((width, width), (width, 4 * width), (4 * width, width), (width, VOCABULARY)):
            for form in FORMATS:
                yield name, tokens, k, n, form, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default=os.devnull, help="file for a line per product, written as it is measured")
    parser.add_argument("--warm", type=float, default=20, help="seconds of 8192^3")
    parser.add_argument("--seconds", type=float, default=2, help="seconds of each other product")
    arguments = parser.parse_args()
    meter, failed = PowerMeter(torch.cuda.get_device_properties(0).uuid), 0
    with open(arguments.json, "w", encoding="utf-8") as file:
        def write(row):
            print(json.dumps(row), file=file, flush=True)
            print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), flush=True)

        write({"benchmark": "torch_products", "torch": torch.__version__, "device": torch.cuda.get_device_name(0)})
        for name, m, k, n, form, seconds in cases(arguments.warm, arguments.seconds):
            row = {"model": name, "kernel": f"{m}x{k}x{n}", "format": form}
            try:
                row |= measure(meter, product(m, k, n, form), seconds, 2.0 * m * k * n)
            except RuntimeError as error:
                failed += 1
                row["error"] = str(error).splitlines()[0]
            write(row)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
