"""What scripts/gpu_check.py runs, in order: three calls of 480, 480 and 400 s. With MUO_CHECK_REHEARSAL set
the same stages at sizes for the SIMT tier, which tests/system/gpu_check_test.py goes through."""
import json
import os
import pathlib
import sys

from gpu_stage import (SANITIZER_FOUND, Stage, by_cases, by_profiler, by_python, by_sanitizer,
                       by_tests)

REHEARSAL = bool(os.environ.get("MUO_CHECK_REHEARSAL"))
BACKEND = "simt" if REHEARSAL else "cuda"
SCRIPTS = pathlib.Path(__file__).resolve().parent
D12_SECONDS = 2 if REHEARSAL else 200
D12_TOKENS = 64 if REHEARSAL else 2**19
REFERENCE_STEPS = 2 if REHEARSAL else 10
RANKS = (1, 2) if REHEARSAL else (1, 2, 4, 8)
# Kernels of ours that a step of d12 spends most on: cases of cuda_kernels_bench.
HOT = ("attention/window2047 bf16", "attention_backward/window2047 bf16", "cross_entropy bf16",
       "mix_norm bf16", "mix_backward bf16", "rotary_norm_backward bf16",
       "relu_squared_backward bf16", "symmetric_product/gram")
DEADLINE = {"MUO_PEER_DEADLINE_MS": "120000" if REHEARSAL else "5000"}  # of a rank that waits for another
ON_BACKEND = {"MUO_TEST_BACKEND": BACKEND, **DEADLINE}
SINGLE = ["--backend", "cuda", "--devices", "1"]


def nanochat_sizes(depth, rows, tokens):
    """A model of nanochat's, T = 2048 and V = 32768."""
    if REHEARSAL:
        return ["--depth", 1, "--n-embd", 32, "--n-head", 2, "--vocab-size", 300, "--max-seq-len", 16,
                "--device-batch-size", 1, "--total-batch-size", D12_TOKENS]
    return ["--depth", depth, "--vocab-size", 32768, "--max-seq-len", 2048, "--device-batch-size", rows,
            "--total-batch-size", tokens]


def text_run(pack, quiet=REHEARSAL):
    """A run on text whose first steps the host has computed beforehand; quiet: no evaluation, no sample."""
    small = ["--depth", 1, "--n-embd", 32, "--n-head", 2, "--max-seq-len", 16, "--total-batch-size", 128,
             "--warmup-steps", 1]
    return ["--config", SCRIPTS.parent / "configs/quick.toml", "--data", pack / "text.txt",
            "--save-every", -1, *(["--eval-every", -1, "--sample-every", -1] if quiet else []),
            *(small if REHEARSAL else [])]


def tests(name, seconds, program, pattern, **more):
    environment = {**ON_BACKEND, **more.pop("environment", {})}
    return Stage(name, seconds, lambda c: [c.pack / program, f"--gtest_filter={pattern}",
                                           "--gtest_output=json:tests.json"],
                 by_tests, environment, **more)


def suites(check, program, seconds, parameter="", **more):
    """A process for each suite: a trap takes the others of its process along."""
    listed = json.loads((check.pack / "tests.json").read_text())
    return [tests(f"{program.removesuffix('_test')}_{suite.replace('/', '_')}", seconds, program,
                  f"{suite}.*{parameter}", **more) for suite in listed[program]]


def device_step(name, pattern):
    return tests(f"device_step_{name}", 90, "graphs_test",
                 "DeviceStep.NothingIsAllocated*" if REHEARSAL else pattern)


def kernels(name, seconds, *options, **more):
    return Stage(name, seconds, lambda c: [c.pack / "cuda_kernels_bench", "--backend", BACKEND, *options],
                 by_cases, numbered=True, **more)


def every_kernel(attention, **more):
    return kernels(f"every_kernel_{attention}", 60, "--small", "--case-seconds", 20, "--json",
                   "kernels.jsonl", environment={"MUO_ATTENTION": attention}, parallel=True, **more)


def sanitized(tool, seconds):
    """Our kernels only: a library's take minutes. What a library writes, initcheck does not see then."""
    return Stage(tool, seconds, lambda c: [
        "", "--tool", tool, "--kernel-name", "kns=3muo", "--error-exitcode", SANITIZER_FOUND, "--print-limit", "20",
        c.pack / "cuda_kernels_bench", "--backend", BACKEND, "--small"],
        by_sanitizer, {"MUO_ATTENTION": "own"}, tool="compute-sanitizer")


def bench(name, seconds, what, depth, rows, *more, tokens=2**19, steps=6, **stage):
    """`muograph bench`: of a step, 4 x steps + 2 of them are run."""
    return Stage(name, seconds, lambda c: [
        c.pack / "muograph", "bench", what, *nanochat_sizes(depth, rows, tokens), "--num-iterations",
        1000, *SINGLE, "--steps", 1 if REHEARSAL else steps, "--json", *more], environment=DEADLINE,
        **stage)


def train(name, seconds, *more, steps=0, **stage):
    """All of the text run, or a few steps."""
    steps = steps or REHEARSAL and 3
    return Stage(name, seconds, lambda c: [
        c.pack / "muograph", "train", *text_run(c.pack, quiet=bool(steps)), *SINGLE, "--out", "run",
        *(["--num-iterations", steps] if steps else []), *more], environment=DEADLINE, **stage)


def model_of(check, stage):
    steps = sorted((check.folder(stage) / "run/checkpoints").glob("step_*"))
    return steps[-1] / "model.safetensors" if steps else check.folder(stage) / "no checkpoint"


def nanochat(name, seconds, check, depth, rows, measured, **stage):
    """nanochat itself, from its own files, that long after it is compiled."""
    return Stage(name, seconds, [
        sys.executable, SCRIPTS / "peer_nanochat_gpu.py", "--checkout", check.pack / "nanochat", "--depth",
        depth, "--rows", rows, "--length", 2048, "--vocabulary", 32768, "--tokens", 2**19, "--seconds",
        measured], by_python, {"TORCHINDUCTOR_CACHE_DIR": str(check.work / "inductor"),
                               "NANOCHAT_BASE_DIR": str(check.work / "nanochat")}, python=True, **stage)


def call_1(c):
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        Stage("doctor", 60, [c.pack / "muograph", "doctor"]),
        every_kernel("auto"),
        every_kernel("own", needs="MUO_ATTENTION"),
        every_kernel("portable", needs="MUO_ATTENTION"),
        *suites(c, "kernels_test", 90, parallel=True),
        *(tests(f"attention_{kind}", 90, "kernels_test", "Attention.*" if REHEARSAL else "Attention*", parallel=True,
                environment={"MUO_ATTENTION": kind}, needs="MUO_ATTENTION")
          for kind in ("own", "portable", *([] if REHEARSAL else ["cudnn"]))),
        tests("models", 90, "golden_test", "*GptGolden*", parallel=True,
              environment={"MUO_TEST_SOURCES": str(c.root)}),
        tests("extras", 90, "model_test", "Extras.*" if REHEARSAL else "*Extras*", parallel=True),
        bench("step_d12_32", 70, "step", 12, 32),
        bench("step_d12_16", 70, "step", 12, 16),
        bench("step_d12_32_free", 70, "step", 12, 32, "--deterministic", "off", needs="--deterministic"),
        bench("step_d12_16_free", 70, "step", 12, 16, "--deterministic", "off", needs="--deterministic"),
        device_step("1", "DeviceStep.FollowsTheHostsCurve"),
        train("eager_2_ranks", 40, "--graph", "off", "--ranks-per-device", 2,
              steps=2 if REHEARSAL else 20),
        *suites(c, "contract_test", 60, f"/{BACKEND}_peer"),
        device_step("2", "DeviceStep.TwoVirtualRanks*"),
        device_step("4", "DeviceStep.FourVirtualRanks*"),
        device_step("more", "DeviceStep.*-DeviceStep.*VirtualRanks*:DeviceStep.FollowsTheHostsCurve"),
        train("train_d4", 60, keep=("run/checkpoints/*/model.safetensors",)),
        train("train_d4_again", 60),
        Stage("same_bits", 10, lambda check: ["cmp", model_of(check, "train_d4"),
                                              model_of(check, "train_d4_again")], after="train_d4_again"),
        train("train_d4_2_ranks", 60, "--ranks-per-device", 2),
        train("train_d4_2_ranks_1_branch", 60, "--ranks-per-device", 2, "--graph-branches", 1,
              needs="--graph-branches", after_failure_of="train_d4_2_ranks"),
        train("train_d4_fp32", 60, "--dtype", "fp32"),
        Stage("sample_d4", 30, lambda check: [
            check.pack / "muograph", "sample", "--checkpoint", check.folder("train_d4") / "run",
            "--backend", "cuda", "--num-samples", 1 if REHEARSAL else 3, "--max-tokens",
            8 if REHEARSAL else 256, "--prompt", "#include <"], after="train_d4"),
        sanitized("memcheck", 120),
        kernels("times", 120, "--case-seconds", 20, "--json", "kernels.jsonl",
                *(["--small"] if REHEARSAL else [])),
        Stage("torch_kernels", 60, [sys.executable, SCRIPTS / "torch_kernels.py", "--json", "torch.jsonl"],
              by_python, python=True),
    ]


def call_2(c):
    gemm = bench("gemm_table", 90, "step", 12, 32, "--gemm-table", "gemm_table.json")
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        *(sanitized(tool, 80) for tool in ("racecheck", "synccheck", "initcheck")),
        gemm,
        bench("step_gemm_table", 60, "step", 12, 32, "--gemm-table",
              c.folder("gemm_table") / "gemm_table.json", after="gemm_table"),
        Stage("ncu", 8 if REHEARSAL else 120, lambda check: [
            "", "--clock-control", "none", "--csv", "--page", "details", "--section", "SpeedOfLight",
            "--section", "Occupancy", "--section", "LaunchStats", "--section", "MemoryWorkloadAnalysis",
            "--kernel-name-base", "demangled", "--kernel-name", "regex:muo", check.pack /
            "cuda_kernels_bench", "--backend", BACKEND, "--once", "--filter", ",".join(HOT)],
            by_profiler, {"MUO_ATTENTION": "own"}, tool="ncu"),
        bench("step_d20_16", 90, "step", 20, 16, steps=3),
        bench("step_d24_16", 100, "step", 24, 16, steps=2),
        *(stage for ranks in RANKS for stage in (
            bench(f"launch_{ranks}", 50, "launch", 12, 4, "--ranks-per-device", ranks, tokens=2**16),
            bench(f"launch_{ranks}_1_branch", 50, "launch", 12, 4, "--ranks-per-device", ranks,
                  "--graph-branches", 1, tokens=2**16, needs="--graph-branches",
                  after_failure_of=f"launch_{ranks}"))),
        *(bench(f"optimizer_{ranks}", 80, "optimizer", 12, 4, "--ranks-per-device", ranks, "--strategy",
                "all" if ranks > 1 and not REHEARSAL else "balanced", tokens=2**16, steps=5)
          for ranks in RANKS),
        bench("optimizer_d24", 60, "optimizer", 24, 4, "--strategy", "balanced", tokens=2**16, steps=5),
        tests("nccl_1_rank", 60, "graphs_test", "NcclStep.Gradients*" if REHEARSAL else "NcclStep.*"),
        *([] if REHEARSAL else [tests("gemm_on_gpu", 40, "cuda_test", "GemmOnGpu.*")]),
        nanochat("nanochat_d24", 150, c, 24, 16, 10, least=100),
    ]


def d12_steps(check):
    """As many as end in D12_SECONDS at the speed that was measured."""
    seconds = min(D12_SECONDS, check.left() - 70)
    try:
        facts = json.loads((check.folder("step_d12") / "stdout.txt").read_text())
        return max(2, int(seconds * facts["tokens_per_s"] / D12_TOKENS))
    except (OSError, ValueError, KeyError):
        return 20


def train_d12(check):
    steps = 2 if REHEARSAL else d12_steps(check)
    return [check.pack / "muograph", "train", "--data", check.pack / "shards/train.bin", "--val-data",
            check.pack / "shards/val.bin", *nanochat_sizes(12, 32, D12_TOKENS), *SINGLE,
            "--num-iterations", steps, "--eval-every", max(1, steps // 4), "--eval-tokens",
            128 if REHEARSAL else 2**18, "--save-every", -1, "--out", "run"]


def call_3(c):
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        bench("step_d12", 60, "step", 12, 32),
        nanochat("nanochat", 150, c, 12, 32, 40),
        Stage("train_d12", D12_SECONDS + 60, train_d12, environment=DEADLINE, least=70),
        Stage("eval_d12", 40, lambda check: [
            check.pack / "muograph", "eval", "--checkpoint", check.folder("train_d12") / "run", "--data",
            check.pack / "shards/val.bin", "--backend", "cuda", "--devices", 1, "--eval-tokens",
            64 if REHEARSAL else 2**18], after="train_d12"),
        bench("step_d12_last", 50, "step", 12, 32),
        kernels("times_last", 100, "--case-seconds", 20, "--json", "kernels.jsonl",
                *(["--small"] if REHEARSAL else [])),
    ]


CALLS = {1: call_1, 2: call_2, 3: call_3}
