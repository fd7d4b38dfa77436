#!/usr/bin/env python3
"""Plants one mistake after another into the CUDA plug-in's host side, in a copy of HEAD under
build/mutations, and says which tests see it. Fails if one goes unseen.      scripts/cuda_mutations.py [NAME...]"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build/mutations"
BUILD = COPY / "build/dev"

STREAM, GEMM = "src/runtime/cuda/cuda_stream.cpp", "src/kernels/cuda/gemm.cpp"
SCRATCH = "    auto* bytes = static_cast<std::byte*>(scratch_);"
STEP, GEMMS, STREAMS = "graphs DeviceStep.TwoVirtual*", "kernels *Gemm*", "contract *StreamContract*simt_peer"
# name: file, what stands there, what the mistake is, the tests that should see it
MUTATIONS = {
    "a dropped event wait": (
        STREAM, "    MUO_CUDA_CHECK(cudaStreamWaitEvent(stream_, dynamic_cast<CudaEvent&>(event).get()));",
        "    static_cast<void>(event);", STREAMS),
    "a record on the wrong stream": (
        STREAM, "    MUO_CUDA_CHECK(cudaEventRecord(dynamic_cast<CudaEvent&>(event).get(), stream_));",
        "    static const cudaStream_t first = stream_;\n"
        "    MUO_CUDA_CHECK(cudaEventRecord(dynamic_cast<CudaEvent&>(event).get(), first));", STREAMS),
    "a fork that is not joined": (
        "optim/sharded_step.cpp", "  order(rank_.update, *all_committed_, rank_.compute);", "", STEP),
    "a synchronise inside a capture": (
        GEMM, "  const RelaxedCapture relaxed;  // the first product of a kind loads its kernel",
        "  const RelaxedCapture relaxed;\n  MUO_CUDA_CHECK(cudaStreamSynchronize(stream));", STEP),
    "a library's kernel loaded in a capture that is not relaxed": (
        GEMM, "  const RelaxedCapture relaxed;  // the first product of a kind loads its kernel", "",
        "simt_gemm *"),
    "transposed leading dimensions": (
        "src/kernels/cuda/gemm_problem.cpp", ".leading = all.columns", ".leading = all.rows", GEMMS),
    "beta ignored": (GEMM, ".beta = adds ? args.beta : 0.0F", ".beta = 0.0F", GEMMS),
    "a workspace shared by two streams": (
        STREAM, SCRATCH, "    static auto* const bytes = static_cast<std::byte*>(std::exchange(scratch_, nullptr));",
        "graphs DeviceStep.*Virtual*"),
    "a buffer freed while in use": (
        "src/runtime/device_group.cpp",
        "    if (options_.plugin != nullptr) device = keep_memory(std::move(device));", "",
        "runtime SimtPeer*,graphs DeviceStep.ARank*"),
    "kernels first loaded beside a spinning collective": (
        "src/runtime/cuda/cuda_device.cpp", "  cuda::load_listed_kernels();", "", "graphs DeviceStep.AKernel*"),
    "a collective and its waiters in one queue": (
        "src/runtime/plugin.cpp", '"CUDA_DEVICE_MAX_CONNECTIONS", "32"', '"CUDA_DEVICE_MAX_CONNECTIONS", "1"', STEP),
}


def run(*command, **options):
    return subprocess.run([*map(str, command)], text=True, capture_output=True, **options)


def build():
    result = run("ninja", "-C", BUILD, "muograph_simt", *(f"{name}_test" for name in ("contract", "graphs", "kernels", "runtime", "simt_gemm")))
    if result.returncode != 0:
        sys.exit(result.stdout[-4000:])


def failures(tests):
    """The first line of each of the programs that fails."""
    for one in tests.split(","):
        program, pattern = one.split(" ")
        environment = {**os.environ, "MUO_TEST_BACKEND": "simt", "CUDA_STAND_IN_PATIENCE": "5"}
        try:
            result = run(BUILD / f"{program}_test", f"--gtest_filter={pattern}", cwd=BUILD, env=environment, timeout=120)
        except subprocess.TimeoutExpired:
            yield f"{one}: it hangs"
            continue
        if result.returncode != 0:
            said = (result.stdout + result.stderr).splitlines()
            told = [line for line in said if re.match(r"CUDA stand-in|C\+\+ exc|.* waited|\[  FAILED  \]", line)]
            yield f"{one}: {(told or said or ['nothing said'])[0][:160]}"


def main(chosen):
    run("git", "worktree", "remove", "--force", COPY, cwd=ROOT)
    added = run("git", "worktree", "add", "--detach", COPY, "HEAD", cwd=ROOT)
    configured = run("cmake", "--preset", "dev", "--log-level=WARNING", cwd=COPY)
    if added.returncode != 0 or configured.returncode != 0:
        sys.exit(added.stderr + configured.stderr)
    build()
    unseen = 0
    for name, (file, right, wrong, tests) in MUTATIONS.items():
        if chosen and name not in chosen:
            continue
        path, text = COPY / file, (COPY / file).read_text()
        if text.count(right) != 1:
            sys.exit(f"{name}: {file} has {text.count(right)} times: {right}")
        path.write_text(text.replace(right, wrong))
        build()
        seen = list(failures(tests))
        path.write_text(text)
        unseen += not seen
        print(f"{name}: " + ("; ".join(seen) or f"UNSEEN by {tests}"), flush=True)
    run("git", "worktree", "remove", "--force", COPY, cwd=ROOT)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
