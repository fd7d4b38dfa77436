"""The stages of scripts/gpu_check.py, in order: three calls of 220, 250 and 250 s, and a fourth for machines with
several GPUs. If MUO_CHECK_REHEARSAL is set (to all, or to few tests of a stage), the same stages have sizes for the
SIMT tier, for tests/system/gpu_check_test.py."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from gpu_stage import (SANITIZER_FOUND, Stage, by_cases, by_profiler, by_python, by_sanitizer,
                       by_tests, by_trial)

REHEARSAL = bool(os.environ.get("MUO_CHECK_REHEARSAL"))
FEW = os.environ.get("MUO_CHECK_REHEARSAL") == "few"  # one test per stage
BACKEND = "simt" if REHEARSAL else "cuda"
SCRIPTS = pathlib.Path(__file__).resolve().parent
D12_SECONDS = 2 if REHEARSAL else 60
D12_TOKENS = 64 if REHEARSAL else 2**19
D12_MICRO = 64 if REHEARSAL else 2**16  # tokens of one micro-step
REFERENCE_STEPS = 2 if REHEARSAL else 10
RANKS = (1, 2) if REHEARSAL else (1, 2, 4, 8)
# Our most expensive kernels in a step of d12, as cases of cuda_kernels_bench.
HOT = ("attention/window2047", "attention_backward/window2047", "cross_entropy", "mix_norm", "rotary_norm",
       "relu_squared_backward", "symmetric_product/gram")
# Decoders of different sizes may round differently, because libraries choose algorithms by size.
DECODER = "Decoder.ReplayIs*:Decoder.AStepGoesOn*:Decoder.AFullRow*:Decoder.ALongContext*"
SAME_BITS = ("--deterministic", "on")
# Deadline of a rank that waits for another.
DEADLINE = {"MUO_PEER_DEADLINE_MS": "120000" if REHEARSAL else "5000"}
# Allows NCCL several ranks on one GPU, and sets the version that its stand-in reports in a rehearsal.
ONE_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_STAND_IN_VERSION": "23007"}
ON_BACKEND = {"MUO_TEST_BACKEND": BACKEND, **DEADLINE}
SINGLE = ["--backend", "cuda", "--devices", "1"]


def gpu_count():
    if REHEARSAL:
        return 2
    return len(subprocess.run(["nvidia-smi", "-L"], text=True, capture_output=True, timeout=20).stdout.splitlines())


def nanochat_sizes(depth, rows, tokens):
    """Options of a nanochat model with T = 2048 and V = 32768."""
    if REHEARSAL:
        return ["--depth", 1, "--n-embd", 32, "--n-head", 2, "--vocab-size", 300, "--max-seq-len", 16,
                "--device-batch-size", 1, "--total-batch-size", D12_TOKENS]
    return ["--depth", depth, "--vocab-size", 32768, "--max-seq-len", 2048, "--device-batch-size", rows,
            "--total-batch-size", tokens]


def text_run(pack, quiet=REHEARSAL):
    """Options of a run on text whose first steps were precomputed on the host. quiet: no evaluation and no samples."""
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


def suites(check, program, seconds, parameter="", name="", **more):
    """One process per suite, because a trap also ends the other suites of its process."""
    listed = json.loads((check.pack / "tests.json").read_text())
    return [tests(f"{name or program.removesuffix('_test')}_{suite.replace('/', '_')}", seconds, program,
                  f"{suite}.*{parameter}", **more) for suite in listed[program]]


def kernel_tests(check, processes=8):
    """All suites in few processes, because loading CUDA's libraries takes most of a process's time."""
    listed = json.loads((check.pack / "tests.json").read_text())["kernels_test"]
    return [tests(f"kernel_tests_{i}", 120, "kernels_test", ":".join(f"{suite}.*" for suite in listed),
                  parallel=True, expected=25,
                  environment={"GTEST_TOTAL_SHARDS": str(processes), "GTEST_SHARD_INDEX": str(i)})
            for i in range(processes)]


def by_name_only(check):
    """Stages that belong to no call: single suites of kernels, for the case that one crashed its process."""
    return suites(check, "kernels_test", 90, parallel=True)


def device_step(name, pattern, expected=10, parallel=True):
    return tests(f"device_step_{name}", 90, "graphs_test",
                 "DeviceStep.NothingIsAllocated*" if FEW else pattern, parallel=parallel, expected=expected)


def kernels(name, seconds, *options, **more):
    return Stage(name, seconds, lambda c: [c.pack / "cuda_kernels_bench", "--backend", BACKEND, *options],
                 by_cases, numbered=True, **more)


def facts(name, *options, **more):
    return kernels(f"facts_{name}", 60, "--dtype", "bf16", "--case-seconds", 20, "--json", "kernels.jsonl", *options,
                   *(["--small"] if REHEARSAL else []), expected=12, **more)


def every_kernel(attention, **more):
    return kernels(f"every_kernel_{attention}", 60, "--small", "--case-seconds", 20, "--json",
                   "kernels.jsonl", environment={"MUO_ATTENTION": attention}, parallel=True, **more)


def sanitized(tool, seconds, **more):
    """A sanitizer on our kernels only, because libraries' kernels take minutes. As a consequence, initcheck does not
    see a library's writes and would report reads of its results, and racecheck has an internal error on cuBLAS's
    kernels, so both skip matrix products. racecheck also ignores that bulk copies complete at a barrier (cp.async.bulk,
    in attention gradients by warpgroups) and reports every read of the copied data, even with __syncwarp() before each
    arrival."""
    products = "-gemm,-newton_schulz,-symmetric_product"
    some = {"initcheck": ["--filter", products], "racecheck": ["--filter", f"{products},-attention_backward"]}
    return Stage(tool, seconds, lambda c: [
        "", "--tool", tool, "--kernel-name", "kns=3muo", "--error-exitcode", SANITIZER_FOUND, "--print-limit", "20",
        c.pack / "cuda_kernels_bench", "--backend", BACKEND, "--small", *some.get(tool, [])],
        by_sanitizer, {"MUO_ATTENTION": "own"}, tool="compute-sanitizer", **more)


def bench(name, seconds, what, depth, rows, *more, tokens=2**19, steps=6, gpus=1, **stage):
    """`muograph bench`. A benchmark of steps runs 4 x steps + 2 of them."""
    return Stage(name, seconds, lambda c: [
        c.pack / "muograph", "bench", what, *nanochat_sizes(depth, rows, tokens), "--num-iterations",
        1000, "--backend", "cuda", "--devices", gpus, "--steps", 1 if REHEARSAL else steps, "--json", *more],
        environment=DEADLINE, **stage)


def train(name, seconds, *more, steps=0, **stage):
    """The whole text run, or a few steps of it."""
    steps = steps or REHEARSAL and 3
    return Stage(name, seconds, lambda c: [
        c.pack / "muograph", "train", *text_run(c.pack, quiet=bool(steps)), *SINGLE, "--out", "run",
        *(["--num-iterations", steps] if steps else []), *more], environment=DEADLINE, **stage)


def kill_and_resume(name, seconds, whole, *more, **stage):
    """The text run of the stage `whole` once more, killed and resumed."""
    again = train(name, seconds, *more)
    return dataclasses.replace(again, command=lambda c: [
        sys.executable, SCRIPTS / "gpu_resume.py", c.folder(whole) / "run", *again.command(c)], after=whole, **stage)


def model_of(check, stage):
    steps = sorted((check.folder(stage) / "run/checkpoints").glob("step_*"))
    return steps[-1] / "model.safetensors" if steps else check.folder(stage) / "no checkpoint"


def nanochat(name, seconds, check, depth, rows, measured, **stage):
    """nanochat itself, from its own files, measured for `measured` seconds after compilation."""
    return Stage(name, seconds, [
        sys.executable, SCRIPTS / "peer_nanochat_gpu.py", "--checkout", check.pack / "nanochat", "--depth",
        depth, "--rows", rows, "--length", 2048, "--vocabulary", 32768, "--tokens", 2**19, "--seconds",
        measured], by_python, {"TORCHINDUCTOR_CACHE_DIR": str(check.work / "inductor"),
                               "NANOCHAT_BASE_DIR": str(check.work / "nanochat")}, python=True, **stage)


def timeline(of):
    """Where the time of the steps that a stage recorded went: the lanes' shares say how much of it is named."""
    return Stage(f"{of}_report", 20, lambda c: [c.pack / "muograph", "timeline", c.folder(of) / "step.json"], after=of)


def same_bits(name, one, other):
    return Stage(name, 10, lambda check: ["cmp", model_of(check, one), model_of(check, other)], after=other)


def trial(stage):
    return dataclasses.replace(stage, judge=by_trial(stage.judge))


def nccl_on_one_gpu():
    """Ranks on one GPU that communicate by NCCL, in one process, as kernels of several would not run at once. The
    archive has a version of NCCL that allows it, as an experiment."""
    def steps(ranks, pattern, expected):
        return tests(f"nccl_{ranks}_ranks_1_gpu", 60, "graphs_test", "NcclStep.Gradients*" if FEW else pattern,
                     environment={"MUO_TEST_NCCL_RANKS": str(ranks)}, expected=expected)

    def text(ranks, form, *more):
        return train(f"nccl_train_{ranks}_ranks{form}", 60, "--ranks-per-device", ranks, "--comm", "nccl", *SAME_BITS,
                     *more, steps=3 if REHEARSAL else 20, expected=4)
    stages = [tests("nccl_contract_1_gpu", 60, "contract_test", f"Shared/*/{BACKEND}_nccl_shared", expected=6),
              steps(2, "NcclStep.*", 14), steps(4, "NcclStep.*-NcclStep.EveryStrategy*", 8),
              *(text(ranks, *form) for ranks in (2, 4) for form in (("",), ("_eager", "--graph", "off")))]
    return [*(trial(dataclasses.replace(stage, environment={**stage.environment, **ONE_GPU}, libraries="nccl"))
              for stage in stages),
            *(same_bits(f"nccl_{ranks}_ranks_same_bits", f"nccl_train_{ranks}_ranks", f"nccl_train_{ranks}_ranks_eager")
              for ranks in (2, 4))]


def on_two_ranks(name, *more, **stage):
    return train(name, 60, "--ranks-per-device", 2, *more, steps=20, **stage)


def call_1(c):
    """Correctness, mostly in parallel. The time of a step is measured early, because it decides what to do next."""
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        Stage("doctor", 60, [c.pack / "muograph", "doctor"]),
        every_kernel("auto"),
        every_kernel("own"),
        every_kernel("portable"),
        tests("models", 90, "golden_test", "*GptGolden*:*GptBF16*", parallel=True,
              environment={"MUO_TEST_SOURCES": str(c.pack)}, expected=15),
        tests("extras", 90, "model_test", "Extras.*" if FEW else "*Extras*", parallel=True, expected=12),
        *(tests(f"attention_{kind}", 90, "kernels_test", "Attention.*" if FEW else "Attention*", parallel=True,
                environment={"MUO_ATTENTION": kind}, expected=12)
          for kind in ("own", "portable")),
        *kernel_tests(c),  # includes cuDNN's attention where cuDNN has a kernel
        bench("step_d12_32", 70, "step", 12, 32, steps=3, expected=35),
        train("train_d4", 90, *SAME_BITS, keep=("run/checkpoints/*/model.safetensors",), parallel=True, expected=30),
        train("train_d4_again", 90, *SAME_BITS, parallel=True, expected=30),
        device_step("1", "DeviceStep.FollowsTheHostsCurve"),
        device_step("2", "DeviceStep.TwoVirtualRanks*"),
        device_step("4", "DeviceStep.FourVirtualRanks*"),
        device_step("more", "DeviceStep.*-DeviceStep.*VirtualRanks*:DeviceStep.FollowsTheHostsCurve:"
                    "DeviceStep.OneBranch*", expected=45),
        tests("recorded_steps", 60, "graphs_test", "RecordedStep.BeginsAnd*" if FEW else "RecordedStep.*",
              parallel=True),
        tests("decoder", 90, "graphs_test", "Decoder.ReplayIs*" if FEW else DECODER, parallel=True),
        *suites(c, "contract_test", 90, f"/{BACKEND}_peer", parallel=True, expected=8),
        on_two_ranks("eager_2_ranks", "--graph", "off", parallel=True),
        train("train_d4_2_ranks", 90, "--ranks-per-device", 2, parallel=True, expected=40),
        train("train_d4_fp32", 90, "--dtype", "fp32", parallel=True, expected=40),
        train("train_documents", 60, "--document-mask", "on", steps=20, parallel=True),
        on_two_ranks("train_sharded_weights", "--shard", "weights", parallel=True),
        train("train_lean", 60, "--master-weights", "split", "--momentum-state", "bf16", "--adam-state", "bf16",
              steps=20, parallel=True),
        Stage("sweep", 90, lambda check: [
            check.pack / "muograph", "sweep", *text_run(check.pack, quiet=True), *SINGLE, "--num-iterations",
            2 if REHEARSAL else 20, "--matrix-lr", "0.1,0.2", "--out", "sweep"], environment=DEADLINE, parallel=True),
        same_bits("same_bits", "train_d4", "train_d4_again"),
        kill_and_resume("kill_and_resume", 60, "train_d4", *SAME_BITS, expected=12),
        Stage("sample_d4", 30, lambda check: [
            check.pack / "muograph", "sample", "--checkpoint", check.folder("train_d4") / "run",
            "--backend", "cuda", "--num-samples", 1 if REHEARSAL else 3, "--max-tokens",
            8 if REHEARSAL else 256, "--prompt", "#include <"], after="train_d4"),
        Stage("hellaswag_d4", 30, lambda check: [
            check.pack / "muograph", "eval", "--checkpoint", check.folder("train_d4") / "run", *SINGLE,
            "--hellaswag", check.pack / "tests/golden/core/hellaswag.bin", "--max-per-task", 7],
            after="train_d4"),
        trial(device_step("3_branches", "DeviceStep.OneBranch*", parallel=False)),
        trial(on_two_ranks("train_d4_3_branches", "--graph-branches", 3)),
    ]


def call_2(c):
    gemm = bench("gemm_table", 90, "step", 12, 32, "--gemm-table", "gemm_table.json")
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        Stage("torch_products", 170, [sys.executable, SCRIPTS / "torch_products.py", "--json", "products.jsonl"],
              by_python, python=True, expected=135),
        kernels("energy", 100, "--dtype", "bf16", "--json", "kernels.jsonl", "--filter",
                *(["cross_entropy,gemm/forward", "--small", "--energy", 0.05] if REHEARSAL else
                  [",".join((*HOT, "gemm/")), "--energy", 2]), expected=70),
        Stage("gpu_facts", 120, [c.pack / "gpu_facts", "--backend", BACKEND, "--json", "facts.jsonl",
                                 *(["--small"] if REHEARSAL else [])], numbered=True, expected=75),
        facts("products", "--filter", "gemm/"),
        facts("products_of_table", "--filter", "gemm/", "--gemm-table", "table.json"),
        facts("attention", "--filter", "attention/window,attention_backward/window,-document"),
        kernels("times", 120, "--case-seconds", 20, "--json", "kernels.jsonl",
                *(["--small"] if REHEARSAL else [])),
        *(sanitized(tool, 80, parallel=True) for tool in ("memcheck", "racecheck", "synccheck")),
        sanitized("initcheck", 80),
        bench("step_d12_32_same_bits", 70, "step", 12, 32, *SAME_BITS),
        bench("timeline_d12", 40, "step", 12, 32, "--timeline", "step.json", steps=3, keep=("step.json",), expected=10),
        timeline("timeline_d12"),
        train("timeline_d4", 40, "--timeline", "step.json", "--profile-steps", "2:3" if REHEARSAL else "10:15",
              steps=3 if REHEARSAL else 20, keep=("step.json",), expected=10),
        timeline("timeline_d4"),
        bench("step_d12_32_unfused", 70, "step", 12, 32, "--fused-products", "off", steps=3),
        bench("step_d12_32_loop", 70, "step", 12, 32, "--graph-micro-steps", "loop", steps=3),
        bench("step_d12_32_untuned", 70, "step", 12, 32, "--tune", "off"),
        bench("step_d12_16", 70, "step", 12, 16),
        bench("step_d12_16_same_bits", 70, "step", 12, 16, *SAME_BITS),
        gemm,
        bench("step_gemm_table", 60, "step", 12, 32, "--gemm-table",
              c.folder("gemm_table") / "gemm_table.json", after="gemm_table"),
        # All kernels of two steps in sequence: the windows of four layers of a d12, and everything else.
        Stage("ncu_step", 8 if REHEARSAL else 90, lambda check: [
            "", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "details", "--metrics",
            "gpu__time_duration.sum", "--kernel-name-base", "demangled", check.pack / "muograph", "train", "--data",
            check.pack / "shards/train.bin", *nanochat_sizes(4, 32, D12_MICRO), *([] if REHEARSAL else [
                "--n-embd", 768, "--n-head", 6]), *SINGLE, "--graph", "off", "--tune", "off", "--num-iterations", 2,
            "--eval-every", -1, "--save-every", -1, "--out", "run"], by_profiler, tool="ncu"),
        Stage("ncu", 8 if REHEARSAL else 120, lambda check: [
            "", "--clock-control", "none", "--csv", "--page", "details", "--section", "SpeedOfLight",
            "--section", "Occupancy", "--section", "LaunchStats", "--section", "MemoryWorkloadAnalysis",
            "--kernel-name-base", "demangled", "--kernel-name", "regex:muo", check.pack /
            "cuda_kernels_bench", "--backend", BACKEND, "--once", "--dtype", "bf16", "--filter", ",".join(HOT)],
            by_profiler, {"MUO_ATTENTION": "own"}, tool="ncu"),
        bench("step_d20_16", 90, "step", 20, 16, steps=3),
        bench("step_d24_16", 100, "step", 24, 16, steps=2),
        # All other figures of overlap are of one branch, where nothing can overlap.
        trial(bench("launch_2_3_branches", 50, "launch", 12, 4, "--ranks-per-device", 2, "--graph-branches", 3,
                    tokens=2**16)),
        *(bench(f"launch_16_{form}", 50, "launch", 12, 2, "--graph-micro-steps", form, tokens=2**16)
          for form in ("loop", "unrolled")),
        *(bench(f"launch_{ranks}", 50, "launch", 12, 4, "--ranks-per-device", ranks, tokens=2**16)
          for ranks in RANKS),
        bench("launch_1_1_branch", 50, "launch", 12, 4, "--graph-branches", 1, tokens=2**16),
        *(bench(f"optimizer_{ranks}", 80, "optimizer", 12, 4, "--ranks-per-device", ranks, "--strategy",
                "all" if ranks > 1 and not REHEARSAL else "balanced", tokens=2**16, steps=5)
          for ranks in RANKS),
        bench("optimizer_d24", 60, "optimizer", 24, 4, "--strategy", "balanced", tokens=2**16, steps=5),
        tests("nccl_1_rank", 60, "graphs_test", "NcclStep.Gradients*" if FEW else "NcclStep.*"),
        *nccl_on_one_gpu(),
        *(bench(f"step_8_ranks_{strategy}{again}", 60, "step", 12, 4, "--ranks-per-device", RANKS[-1], "--strategy",
                strategy, tokens=2**16, steps=2, expected=8)
          for again in ("", "_again") for strategy in ("stacked", "balanced")),
        *([] if REHEARSAL else [tests("gemm_on_gpu", 40, "cuda_test", "GemmOnGpu.*")]),
        Stage("torch_kernels", 60, [sys.executable, SCRIPTS / "torch_kernels.py", "--json", "torch.jsonl"],
              by_python, python=True),
        nanochat("nanochat_d24", 150, c, 24, 16, 10, least=100),
    ]


def d12_steps(check):
    """The number of steps that take D12_SECONDS at the measured speed."""
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
        nanochat("nanochat", 150, c, 12, 32, 25),
        bench("step_d12_1_branch", 60, "step", 12, 32, "--graph-branches", 1, steps=3),
        Stage("train_d12", D12_SECONDS + 60, train_d12, environment=DEADLINE, least=70),
        Stage("eval_d12", 40, lambda check: [
            check.pack / "muograph", "eval", "--checkpoint", check.folder("train_d12") / "run", "--data",
            check.pack / "shards/val.bin", "--backend", "cuda", "--devices", 1, "--eval-tokens",
            64 if REHEARSAL else 2**18], after="train_d12"),
        bench("step_d12_last", 50, "step", 12, 32),
        kernels("times_last", 100, "--case-seconds", 20, "--json", "kernels.jsonl",
                *(["--small"] if REHEARSAL else [])),
    ]


def call_4(c):
    """Stages that need several GPUs."""
    gpus = [count for count in (1, 2, 4, 8) if count <= gpu_count()]
    return [
        Stage("machine", 40, [sys.executable, SCRIPTS / "gpu_results.py", "--facts", c.pack], python=True),
        *suites(c, "contract_test", 60, "/simt_nccl" if REHEARSAL else "/multi_gpu_*", name="on_gpus"),
        tests("nccl_steps", 120, "graphs_test", "NcclStep.Gradients*" if FEW else "NcclStep.*"),
        *(bench(f"step_d12_{count}_gpus_{comm}", 90, "step", 12, 32, "--comm", comm, gpus=count,
                tokens=count * 2**16)
          for count in gpus[1:] for comm in ("peer", "nccl")),
        *(bench(f"step_d24_{count}_gpus", 120, "step", 24, 16, gpus=count, steps=3) for count in gpus),
        *(bench(f"launch_{count}_gpus", 60, "launch", 12, 4, gpus=count, tokens=2**16) for count in gpus[1:]),
        *(bench(f"optimizer_{count}_gpus", 90, "optimizer", 24, 4, "--strategy", "balanced" if REHEARSAL else "all",
                gpus=count, tokens=2**16, steps=5) for count in gpus[1:]),
    ]


CALLS = {1: call_1, 2: call_2, 3: call_3, 4: call_4}
