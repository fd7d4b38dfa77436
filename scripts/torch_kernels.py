#!/usr/bin/env python3
"""Measures PyTorch on this GPU for operations with which muograph is compared: the three matrix products of a
Newton-Schulz iteration with baddbmm, and attention, at the sizes of tests/bench/product_cases.h.
  scripts/torch_kernels.py [--json FILE]"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

B, T, HEADS, HEAD, MATRICES = 32, 2048, 6, 128, 12


def seconds_of(run):
    """Seconds of one call: the median of seven launches of graphs of many calls."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(20):
            run()
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 20)
    return statistics.median(times)


def newton_schulz(m, n):
    x = 0.01 * torch.randn(MATRICES, m, n, device="cuda", dtype=torch.bfloat16)

    def run():
        a = torch.bmm(x, x.mT)
        b = torch.baddbmm(a, a, a, beta=-4.8, alpha=2.0)
        torch.baddbmm(x, b, x, beta=3.4, alpha=1.0)

    flops = MATRICES * m * m * (4.0 * n + 2.0 * m)
    return {"kernel": f"newton_schulz_iteration/{MATRICES}x{m}x{n}", "flops": flops, "run": run}


def attention(backward):
    shape = (B, HEADS, T, HEAD)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=backward)
               for _ in range(3))
    flops = 4.0 * B * HEADS * HEAD * T * (T + 1) / 2
    if not backward:
        return {"kernel": f"attention/window{T - 1}", "flops": flops,
                "run": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)}
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    dout = torch.randn_like(out)
    return {"kernel": f"attention_backward/window{T - 1}", "flops": 2.5 * flops,
            "run": lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default=os.devnull, help="file for a line per operation, written as it is measured")
    arguments = parser.parse_args()
    failed = 0
    torch.cuda.set_stream(torch.cuda.Stream())  # gradients run on the stream of their forward pass, where graphs are captured
    with open(arguments.json, "w", encoding="utf-8") as file:
        def write(row):
            print(json.dumps(row), file=file, flush=True)

        write({"benchmark": "torch_kernels", "torch": torch.__version__,
               "device": torch.cuda.get_device_name(0)})
        for make in (lambda: newton_schulz(HEADS * HEAD, 4 * HEADS * HEAD), lambda: attention(False),
                     lambda: attention(True)):
            try:
                case = make()
                seconds = seconds_of(case["run"])
            except RuntimeError as error:
                failed += 1
                write({"error": str(error)})
                print(f"FAILED: {error}", flush=True)
                continue
            tflops = case["flops"] / seconds * 1e-12
            write({"kernel": case["kernel"], "us": seconds * 1e6, "tflops": tflops})
            print(f"{case['kernel']:44} {seconds * 1e6:10.1f} us {tflops:8.1f} TFLOP/s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
