#!/usr/bin/env python3
"""Rehearses the calls of scripts/gpu_check.sh with the programs of a dev build, with the SIMT tier instead of a GPU and
scripts instead of NVIDIA's tools, some of which hang, die or trap: results of finished stages must be in OUT. With
MUO_SLOW=1 runs every suite, else one or two per program and one test per stage.
  tests/system/gpu_check_test.py BUILD"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check  # noqa: E402
import gpu_prepare  # noqa: E402
import gpu_stage  # noqa: E402
import gpu_stages  # noqa: E402
import trim_gpu_code  # noqa: E402

PROGRAMS = ("kernels_test", "contract_test", "graphs_test", "model_test", "golden_test", "cuda_kernels_bench",
            "muograph", "libmuograph_core.so", "libmuograph_simt.so", "libcuda_stand_in.so")
CALLS = (1, 2, 3, 4)
SUITES = {"kernels_test": ["Add", "Cast", "RmsNorm", "Transpose"],
          "contract_test": ["Backends/StreamContract", "Backends/CommunicatorContract"]}
EVERY_SUITE = bool(os.environ.get("MUO_SLOW"))
ENDED = re.compile(r"^call \d .*? s  \[[a-z ]+\] (\w+)")  # the stage in a line of output
BIGGEST, MOST_FILES = 16 << 20, 8

FAKES = {
    "nvidia-smi": """
        case "$*" in
          *-lms*) while [ -e "$0" ]; do echo "now, 1234, 50, 300.5, 1500, 40"; sleep 0.2; done ;;
          *query-gpu=name*) echo "NVIDIA H100 80GB HBM3" ;;
          -L) printf 'GPU 0: H100\nGPU 1: H100\n' ;;
          *driver_version*) echo 580.1 ;;
          *) echo 1 ;;
        esac""",
    # memcheck finds nothing, the process under racecheck traps, and the third tool does not support the device.
    "compute-sanitizer": """
        case "$2" in
          memcheck) while [ "${1##*/}" != cuda_kernels_bench ]; do shift; done
                    "$@" --filter sum && echo "========= ERROR SUMMARY: 0 errors" ;;
          racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
                     kill -TRAP $$ ;;
          *) echo "========= Error: Device not supported"; exit 1 ;;
        esac""",
    "ncu": """trap '' TERM
        echo $$ >"$0.pid"
        echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
        echo '"0","muo::adamw","Duration","us","12.5"'
        case "$*" in *" train "*) exit ;; esac
        for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 10; done""",
    "golden_test": "echo going; kill -KILL $$",
}
# Traps in its eighth case, as a kernel might; a new process continues after that case.
TRAPS = """#!/usr/bin/env python3
import os, signal, subprocess, sys
real = [{program!r}, *sys.argv[1:]]
if not os.path.basename(os.getcwd()).startswith("times") or "--from" in sys.argv:
    os.execv(real[0], real)
process = subprocess.Popen(real, stdout=subprocess.PIPE, text=True)
for line in process.stdout:
    print(line, end="", flush=True)
    if line.startswith("[7]"):
        process.kill()
        os.kill(os.getpid(), signal.SIGTRAP)
"""


def script(path, text):
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Judges(unittest.TestCase):
    """Tests the verdicts on the output of tools."""

    def judged(self, judge, code, said="", **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"stdout.txt": said, **files}.items():
                (pathlib.Path(folder) / name).write_text(text)
            return judge(pathlib.Path(folder), code)

    def test_sanitizers(self):
        for code, said, want in (
                (0, "========= ERROR SUMMARY: 0 errors\n", "passed"),
                (9, "========= Invalid __global__ read\n========= ERROR SUMMARY: 10 errors\n", "failed"),
                (0, "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n", "failed"),
                (-5, "========= ERROR SUMMARY: 0 errors\n", "killed"),
                (3, "[3] rms_norm FAILED: lost\n========= ERROR SUMMARY: 0 errors\n", "failed"),
                (1, "========= Error: Device not supported\n", "tool unavailable"),
                (None, "========= COMPUTE-SANITIZER\n", "timeout")):
            self.assertEqual(self.judged(gpu_stage.by_sanitizer, code, said)[0], want, said)

    def test_profilers(self):
        for code, said, want in ((0, '"ID","Kernel Name"\n"0","adamw"\n', "passed"),
                                 (0, "==ERROR== ERR_NVGPUCTRPERM\n", "tool unavailable"),
                                 (1, "", "tool unavailable")):
            self.assertEqual(self.judged(gpu_stage.by_profiler, code, said)[0], want, said)

    def test_cases_and_tests(self):
        rows = '{"case":1,"kernel":"sum","dtype":"bf16","error":"no plan"}\n{"case":2,"us":1}\n'
        self.assertEqual(self.judged(gpu_stage.by_cases, 4, **{"kernels.jsonl": rows}),
                         ("failed", "sum bf16: no plan"))
        self.assertEqual(self.judged(gpu_stage.by_cases, 0, **{"kernels.jsonl": rows[-19:]})[0], "passed")
        skipped = {"testsuites": [{"name": "A", "testsuite": [{"name": "B", "result": "SKIPPED"}]}]}
        verdict = self.judged(gpu_stage.by_tests, 0, **{"tests.json": json.dumps(skipped)})
        self.assertEqual(verdict, ("failed", "no test ran; skipped: A.B"))

    def test_trials(self):
        trial = gpu_stage.by_trial(gpu_stage.by_exit)
        hung = "muograph: rank 0 waited 5000 ms in all_reduce with tag 3 for rank 1, which did not arrive"
        self.assertEqual(self.judged(trial, 3, **{"stderr.txt": hung}), ("hung", hung))
        stuck = "muograph: error: rank 1, step 4: no heartbeat for 20 s"
        self.assertEqual(self.judged(trial, 3, **{"stderr.txt": stuck}), ("hung", stuck))
        self.assertEqual(self.judged(trial, None)[0], "hung")
        self.assertEqual(self.judged(trial, 3, **{"stderr.txt": "muograph: no"})[0], "failed")
        self.assertEqual(self.judged(trial, 0)[0], "passed")


class Archive(unittest.TestCase):
    def test_stages_of_several_ranks_on_a_gpu_use_the_archives_nccl(self):
        check = types.SimpleNamespace(pack=pathlib.Path("/pack"), libraries="/cuda", work=pathlib.Path("/work"))
        for stage in gpu_stages.nccl_on_one_gpu():
            if "same_bits" not in stage.name:
                environment = gpu_check.Check.environment(check, stage)
                self.assertTrue(environment["LD_LIBRARY_PATH"].startswith("/pack/nccl:/cuda"), stage.name)
                self.assertEqual(environment["NCCL_MULTI_RANK_GPU_ENABLE"], "1")

    def test_a_library_keeps_only_the_code_of_its_gpus(self):
        code = {(1, 90): b"ptx.", (2, 80): b"is80", (2, 90): b"is90", (2, 100): b"i100"}
        entry = trim_gpu_code.ENTRY
        entries = b"".join(entry.pack(kind, 257, entry.size, 4, 0, 0, 0, 0, gpu) + text
                           for (kind, gpu), text in code.items())
        fatbin = trim_gpu_code.FATBIN.pack(trim_gpu_code.MAGIC, 1, trim_gpu_code.FATBIN.size, len(entries)) + entries
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            (work / "fatbin").write_bytes(fatbin + bytes(8) + fatbin)
            (work / "code.S").write_text("".join(
                f'.section {name}, "a"\n.incbin "{work}/fatbin"\n' for name in (".nv_fatbin", "__nv_relfatbin")))
            subprocess.run(["c++", "-shared", "-nostdlib", "-o", work / "library", work / "code.S"], check=True)
            for gpus, kept in ((["90a-real"], {(2, 90)}), (["86-real", "103-real"], {(2, 80), (2, 100)})):
                subprocess.run([ROOT / "scripts/trim_gpu_code.py", work / "library", work / "copy", *gpus], check=True,
                               capture_output=True)
                library, copy = ((work / name).read_bytes() for name in ("library", "copy"))
                self.assertEqual(len(copy), len(library))
                for what, text in code.items():
                    self.assertEqual((library.count(text), copy.count(text)), (4, 2 if what in kept else 0), what)
            refused = subprocess.run([ROOT / "scripts/trim_gpu_code.py", work / "library", work / "none", "120-real"],
                                     text=True, capture_output=True)
            self.assertIn("has no code for 120-real", refused.stderr)


class Plan(unittest.TestCase):
    def test_stages_of_several_ranks_end_in_90_seconds(self):
        stages = [stage for number in (1, 2) for stage in gpu_stages.CALLS[number](self.check_of_a_build())
                  if re.match("nccl_[^1]|step_8_ranks|kill_and_resume", stage.name)]
        self.assertGreater(len(stages), 10)
        self.assertLess(sum(stage.expected for stage in stages if "same_bits" not in stage.name), 90)

    def test_call_1_ends_in_200_seconds(self):
        stages = gpu_stages.call_1(self.check_of_a_build())
        at_once = sum(stage.expected for stage in stages if stage.parallel) / gpu_check.AT_ONCE
        self.assertLess(at_once + sum(stage.expected for stage in stages if not stage.parallel), 200)
        for stage in stages:
            self.assertLessEqual(stage.expected, stage.seconds, stage.name)

    def check_of_a_build(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tests = {program: gpu_prepare.suites(BUILD, program) for program in ("kernels_test", "contract_test")}
        (pathlib.Path(folder.name) / "tests.json").write_text(json.dumps(tests))
        return types.SimpleNamespace(pack=pathlib.Path(folder.name), work=pathlib.Path(folder.name),
                                     folder=pathlib.Path(folder.name).joinpath)


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.addClassCleanup(cls.temporary.cleanup)
        tools, pack = cls.folder / "tools", cls.folder / "pack"
        for folder in (tools, pack):
            folder.mkdir()
        for name, text in FAKES.items():
            script((pack if name.endswith("_test") else tools) / name, text)
        (tools / "torch.py").write_text('raise ModuleNotFoundError("No module named \'torch\'")\n')
        for name in PROGRAMS:
            if not (pack / name).exists():
                (pack / name).symlink_to(BUILD / name)
        (pack / "nccl").mkdir()
        (pack / "nccl/libnccl.so.2").symlink_to(BUILD / "stand_ins/libnccl.so.2")
        (pack / "gpu_facts").symlink_to(BUILD / "gpu_facts_simt")
        (pack / "cuda_kernels_bench").unlink()
        script(pack / "cuda_kernels_bench", TRAPS.format(program=str(BUILD / "cuda_kernels_bench")))
        cls.environment = {
            **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(tools),
            "MUO_CHECK_REHEARSAL": "all" if EVERY_SUITE else "few", "MUO_CUDA_PLUGIN": "muograph_simt",
            "SIMT_ORDER": "seq",
            "SIMT_CUDNN": "1", "MUO_CHECK_PATIENCE": "10" if EVERY_SUITE else "1"}
        (pack / "text.txt").write_text((ROOT / "README.md").read_text() * 4)
        cls.run_script("gpu_shards.py", pack / "shards", "--tokens", 4000, "--vocab-size", 300,
                       "--sources", ROOT / "src/base", ROOT / "src/runtime")
        cls.run_script("gpu_prepare.py", BUILD, pack)
        suites = json.loads((pack / "tests.json").read_text())
        for program, chosen in SUITES.items():
            assert set(chosen) <= set(suites[program]), suites
        if not EVERY_SUITE:
            (pack / "tests.json").write_text(json.dumps(SUITES))
        (pack / "commit").write_text("0123456789ab\n")
        archive = cls.folder / "pack.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(pack, ".")
        cls.unpacked = cls.folder / "an empty folder"  # without the checkout beside it
        cls.unpacked.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", cls.unpacked], check=True)
        cls.out = cls.folder / "out"
        cls.proof = subprocess.run([ROOT / "scripts/prove_gpu.sh", "--pack", cls.unpacked, "--minutes", "80", cls.out],
                                   text=True, env=cls.environment, capture_output=True)

    @classmethod
    def run_script(cls, name, *arguments):
        return subprocess.run([ROOT / "scripts" / name, *map(str, arguments)], check=True, text=True,
                              env=cls.environment, capture_output=True).stdout

    def command(self, call, seconds, out, *stages):
        return [self.unpacked / "scripts/gpu_check.sh", str(call), str(seconds), out, *stages]

    def proven(self, call):
        self.assertEqual(self.proof.returncode, 1, self.proof.stdout + self.proof.stderr)
        return self.archived_verdicts(call, self.out / f"call_{call}")

    def archived_verdicts(self, call, out):
        """The verdicts by stage, read only from the archive."""
        files = list(out.iterdir())
        self.assertLessEqual(len([path for path in files if path.name.startswith(f"call{call}")]),
                             MOST_FILES)
        for path in files:
            self.assertRegex(path.name, r"^[A-Za-z0-9._-]+$")
            self.assertLess(path.stat().st_size, BIGGEST)
        with tarfile.open(out / f"call{call}.tar.gz") as tar:
            lines = tar.extractfile("verdicts.jsonl").read().decode().splitlines()
            names = set(tar.getnames())
        rows = {row["stage"]: row for row in map(json.loads, lines)}
        for name, row in rows.items():
            if "exit" in row:
                self.assertIn(f"{name}/stdout.txt", names)
        return rows

    def expect(self, rows, **expected):
        """Checks the verdicts of these stages and that all other stages passed."""
        for name, row in rows.items():
            want = expected.get(name, "passed")
            self.assertRegex(row["verdict"], f"^({want})$", row)
        self.assertLessEqual(set(expected), set(rows))

    def test_1_traps_and_deaths_cost_their_stage_only(self):
        rows = self.proven(1)
        self.expect(rows, models="killed")
        self.assertIn("SIGKILL", rows["models"]["why"])
        self.assertEqual(rows["same_bits"]["exit"], 0)
        self.assertEqual(rows["kill_and_resume"]["exit"], 0)
        self.assertEqual(rows["step_d12_32"]["peak_gpu_mib"], 1234)
        self.assertIn("tokens_per_s", self.proof.stdout)
        with tarfile.open(self.out / "call_1/call1_train_d4.tar.gz") as tar:
            self.assertRegex(tar.getnames()[0], r"^train_d4/run/checkpoints/.*/model\.safetensors$")

    def test_2_a_stage_that_hangs_is_ended_and_tools_may_not_work(self):
        rows = self.proven(2)
        self.expect(rows, times="failed", torch_kernels="tool unavailable",
                    torch_products="tool unavailable", ncu="timeout", racecheck="killed",
                    nanochat_d24="tool unavailable",
                    synccheck="tool unavailable", initcheck="tool unavailable")
        self.assertEqual(rows["memcheck"]["why"], "ERROR SUMMARY: 0 errors")
        self.assertEqual(rows["times"]["restarts"], [7])
        with tarfile.open(self.out / "call_2/call2.tar.gz") as tar:
            cases = [json.loads(line) for line in tar.extractfile("times/kernels.jsonl")]
        cases = {row["case"] for row in cases if "us" in row or "kernel" in row and "error" not in row}
        self.assertEqual(cases | {7}, set(range(max(cases) + 1)))
        self.assertGreater(len(cases), 50)
        with tarfile.open(self.out / "call_2/call2.tar.gz") as tar:
            energy = [json.loads(line) for line in tar.extractfile("energy/kernels.jsonl")]
        self.assertGreater(min(row["joules"] for row in energy if "kernel" in row), 0)
        self.assertIn("1 rows", rows["ncu"]["why"])
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.folder / "tools/ncu.pid").read_text()), 0)
        self.assertIn("Device not supported", rows["initcheck"]["why"])
        self.assertNotIn("exit", rows["initcheck"])  # not run again

    def test_3_real_data_and_another_trainer(self):
        rows = self.proven(3)
        self.expect(rows, nanochat="tool unavailable", times_last="failed")
        self.assertIn("torch", rows["nanochat"]["why"])
        self.expect(self.proven(4))
        with tarfile.open(self.out / "results.tar.gz") as tar:
            self.assertLess(5, len(tar.getnames()))
        self.assertIn("send a pull request", self.proof.stdout)
        again = subprocess.run([ROOT / "scripts/prove_gpu.sh", self.out], text=True, capture_output=True)
        self.assertEqual((again.returncode, again.stderr),
                         (2, f"prove_gpu.sh: {self.out} exists already: give another folder\n"))

    def test_4_results_of_all(self):
        results = self.folder / "results"
        with_peer = self.folder / "with_peer"
        shutil.copytree(self.out, with_peer)
        self.add_nanochat(with_peer / "call_3")
        calls = [with_peer / f"call_{number}" for number in CALLS]
        command = [ROOT / "scripts/gpu_results.py", *calls, "--results", results]
        result = subprocess.run(command, text=True, capture_output=True, env=self.environment)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        reports = {path.stem.split("-")[-1]: json.loads(path.read_text()) for path in results.iterdir()}
        self.assertEqual(set(reports),
                         {"checks", "facts", "step", "kernels", "optimizer", "peers", "training"})
        for report in reports.values():
            self.assertEqual(report["gpu"], "NVIDIA H100 80GB HBM3")
            self.assertEqual(report["commit"], "0123456789ab")
        self.assertEqual(len(reports["training"]["train_d4"]["losses"]), 2)
        self.assertLess(reports["training"]["train_d4_fp32"]["rms_apart"], 1e-4)
        peer = reports["peers"]["nanochat"]
        self.assertEqual(peer["tokens_per_s_over_nanochat"], peer["muograph"]["tokens_per_s"] / 1000)
        joules = peer["muograph"]["power"]["joules_per_step"] / peer["muograph"]["tokens_per_step"]
        self.assertEqual(peer["joules_per_token_over_nanochat"], joules / 0.5)
        self.assertGreater(reports["training"]["train_d12"]["epochs"], 0)
        self.assertEqual(reports["kernels"]["ncu"][0], {"kernel": "muo::adamw", "Duration": "12.5 us"})
        self.assertIn("racecheck", result.stdout.splitlines()[-1])
        self.assertRegex(result.stdout, r"\| plain GPT.*failed: models.*H100")
        self.assertRegex(result.stdout, r"\| `--comm nccl`.*passed \(11 stages\)")
        for ranks in (2, 4):
            run = reports["training"][f"nccl_train_{ranks}_ranks"]
            self.assertEqual((len(run["losses"]), run["losses"]), (3, run["eager_losses"]))
        self.assertEqual(sum(row["stage"].startswith("step_8_ranks_") for row in reports["step"]["rows"]), 4)

    def add_nanochat(self, out):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(out / "call3.tar.gz") as tar:
                tar.extractall(folder)
            answers = [{"benchmark": "nanochat", "tokens_per_step": 1000}, {"seconds": 1.0},
                       {"tokens_per_s": 1000.0, "joules_per_step": 500.0}]
            (pathlib.Path(folder) / "nanochat/stdout.txt").write_text(
                "".join(json.dumps(answer) + "\n" for answer in answers) + '{"cut')
            with tarfile.open(out / "call3.tar.gz", "w:gz") as tar:
                tar.add(folder, ".")

    def test_5_finished_results_survive_a_kill(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            out = self.folder / f"killed_{number}"
            process = subprocess.Popen(self.command(2, 300, out, "kernels_C*"), text=True,
                                       stdout=subprocess.PIPE, env=self.environment)
            ended = []
            for line in process.stdout:
                ended += ENDED.findall(line)
                if "racecheck" in ended:
                    break
            time.sleep(0.5)  # in the middle of another stage, or of writing its archive
            process.send_signal(number)
            rest = process.stdout.read()
            self.assertEqual(process.wait(), -9 if number == signal.SIGKILL else 143)
            process.stdout.close()
            ended += [name for line in rest.splitlines() for name in ENDED.findall(line)]
            rows = self.archived_verdicts(2, out)
            # Named stages run first, after `machine`.
            self.assertEqual(list(rows)[:2], ["machine", "kernels_Cast"])
            self.assertIn("racecheck", rows)
            self.assertLessEqual(set(ended) - {ended[-1]}, set(rows))
            self.assertIn("kernels_Cast", (out / "call2.txt").read_text())

    def test_6_nothing_is_started_without_time(self):
        out = self.folder / "late"
        subprocess.run(self.command(3, 12, out), check=True, capture_output=True, env=self.environment)
        rows = self.archived_verdicts(3, out)
        self.assertEqual({row["verdict"] for row in rows.values()} - {"skipped"}, {"no time"})
        with subprocess.Popen(self.command(3, 12, self.folder / "unheard"), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=self.environment) as process:
            process.stdout.close()
        self.assertEqual(set(self.archived_verdicts(3, self.folder / "unheard")), set(rows))
        again = subprocess.run(self.command(3, 12, out), capture_output=True, text=True)
        self.assertEqual(again.returncode, 2)
        self.assertIn("has results of call 3", again.stderr)
        result = subprocess.run(self.command(5, 12, out), capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        checkout = [ROOT / "scripts/gpu_check.sh", "1", "60", self.folder / "none"]
        result = subprocess.run(checkout, capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("unpack its archive into an empty folder", result.stderr)
        result = subprocess.run(self.command(1, 60, out, "no_such_stage"), text=True,
                                capture_output=True, env=self.environment)
        self.assertIn("no stage is called no_such_stage", result.stderr)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
