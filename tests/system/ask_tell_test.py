#!/usr/bin/env python3
"""Tests `muograph sweep --ask-tell` in the role of the optimizer.      tests/system/ask_tell_test.py BUILD"""
import contextlib
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTUNA_PYTHON = os.environ.get("MUO_TEST_PYTHON", "python3")
OPTIONS = ("--model plain --depth 1 --n-embd 32 --n-head 2 --max-seq-len 32 --total-batch-size 768 --eval-every 10 "
           "--num-iterations 20 --warmup-steps 5 --eval-tokens 640 --devices 2 --embedding-lr 2").split()
STEPS = 20


class Sweep:
    """A sweep that runs in a separate process."""

    def __init__(self, *options):
        self.process = subprocess.Popen([program, "sweep", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)

    def send(self, message):
        self.process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")

    def receive(self, *events):
        """Returns the next message with one of these events."""
        for line in self.process.stdout:
            message = json.loads(line)
            if not events or message["event"] in events:
                return message
        raise AssertionError("no such message: " + self.process.stderr.read())

    def wait(self):
        """Waits for the sweep, and returns its exit code and the remaining messages."""
        self.process.stdin.close()
        messages = [json.loads(line) for line in self.process.stdout]
        self.errors = self.process.stderr.read()
        return self.process.wait(), messages


class AskTell(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text("".join(f"{i} times {i} is {i * i}. " for i in range(900)))
        self.sweeps = []
        self.addCleanup(self.kill)

    def kill(self):
        for sweep in self.sweeps:
            sweep.process.kill()
            sweep.process.wait()
            for pipe in (sweep.process.stdin, sweep.process.stdout, sweep.process.stderr):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def options(self, *more):
        return ["--ask-tell", "on", "--data", str(self.folder / "text.txt"), "--out", str(self.folder / "sweep"),
                *OPTIONS, *more]

    def start(self, *more):
        self.sweeps.append(Sweep(*self.options(*more)))
        return self.sweeps[-1]

    def table(self):
        with open(self.folder / "sweep/sweep.csv") as file:
            return list(csv.DictReader(file))

    def test_results_are_those_of_the_table(self):
        sweep = self.start()
        ready = sweep.receive()
        self.assertEqual((ready["event"], ready["workers"], ready["trials"]), ("ready", 2, []))
        for i in range(5):
            sweep.send({"trial": i, "options": {"matrix-lr": 0.05 * (i + 1)}})
        sweep.send({"trial": "deep", "options": {"depth": 2, "matrix-lr": "0.1", "replicas": "own"}})
        code, messages = sweep.wait()
        self.assertEqual(code, 0, sweep.errors)
        self.assertIn("captures: ", sweep.errors)
        results = {message["trial"]: message for message in messages if message["event"] == "result"}
        self.assertEqual(set(results), {0, 1, 2, 3, 4, "deep"})
        for row in self.table():
            result = results["deep" if row["trial"] == "5" else int(row["trial"])]
            self.assertEqual((row["state"], int(row["step"])), ("done", STEPS))
            self.assertEqual(float(row["val_loss"]), result["val_loss"])
            self.assertEqual(row["matrix-lr"], result["options"]["matrix-lr"])
            self.assertTrue(pathlib.Path(result["directory"], "metrics.jsonl").exists())
        self.assertEqual(len({result["val_loss"] for result in results.values()}), 6)
        steps = [message["step"] for message in messages if message["event"] == "evaluation" and message["trial"] == 2]
        self.assertEqual(steps, [0, 10, STEPS])

    def test_errors_are_answered_and_nothing_else_happens(self):
        sweep = self.start()
        sweep.receive("ready")
        sweep.send({"trial": 0, "options": {}})
        for line, why in [
                ('{"trial": 1', "malformed JSON"), ("[1]", "not a JSON object"), ('{"options": {}}', '"trial" is missing'),
                ('{"trial": -1, "options": {}}', '"trial" is missing, or neither'),
                ('{"trial": 1.5, "options": {}}', '"trial" is missing, or neither'),
                (json.dumps({"trial": "x" * 200, "options": {}}), "give at most 100"),
                ('{"trial": 0, "options": {}}', "trial 0 already exists"), ('{"trial": 1}', 'either "options"'),
                ('{"trial": 1, "trial": 2, "options": {}}', "occurs twice"),
                ('{"trial": 1, "options": {}, "stop": true}', 'either "options"'),
                ('{"trial": 1, "stop": true}', "no trial 1"), ('{"trial": 0, "stop": 1}', "must be true"),
                ('{"trial": 1, "options": [1]}', "is not an object"), ('{"trial": 1, "option": {}}', 'unknown key "option"'),
                ('{"trial": 1, "options": {"depht": 2}}', "did you mean depth?"),
                ('{"trial": 1, "options": {"devices": 2}}', "devices cannot vary"),
                ('{"trial": 1, "options": {"matrix-lr": [1]}}', "matrix-lr: [1] is not a number"),
                ("x" * (3 << 20), "more than 1048576 bytes")]:
            sweep.send(line)
            answer = sweep.receive("error")
            self.assertIn(why, answer["message"])
            self.assertNotIn("\n", answer["message"])
        self.assertEqual(answer["line"], 19)
        sweep.send({"trial": 1, "options": {"matrix-lr": -1}})  # an impossible value ends the trial
        code, messages = sweep.wait()
        self.assertEqual(code, 0, sweep.errors)
        self.assertEqual([row["state"] for row in self.table()], ["done", "refused"])
        refused = [message for message in messages if message.get("state") == "refused"]
        self.assertIn("out of range", refused[0]["message"])

    def test_a_trial_is_stopped_running_or_waiting(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.receive("ready")
        sweep.send({"trial": 0, "options": {}})
        sweep.send({"trial": 1, "options": {"seed": 3}})
        while sweep.receive("evaluation")["step"] < 10:
            pass
        sweep.send({"trial": 1, "stop": True})
        waiting = sweep.receive("result")
        self.assertEqual((waiting["trial"], waiting["state"], waiting["step"]), (1, "stopped", 0))
        sweep.send({"trial": 0, "stop": True})
        sweep.send({"trial": 1, "stop": True})  # no effect: it has ended
        running = sweep.receive("result")
        self.assertEqual((running["trial"], running["state"]), (0, "stopped"))
        self.assertGreaterEqual(running["step"], 10)
        self.assertIsNotNone(running["val_loss"])
        self.assertTrue((self.folder / f"sweep/trials/0000/checkpoints/step_{running['step']:08d}").exists())
        code, messages = sweep.wait()
        self.assertEqual((code, messages), (0, []), sweep.errors)

    def test_killed_and_resumed_it_knows_its_trials(self):
        sweep = self.start("--devices", "1", "--num-iterations", "400", "--save-every", "20")
        sweep.receive("ready")
        for i in range(2):
            sweep.send({"trial": i, "options": {"seed": i}})
        first = sweep.receive("result")
        while sweep.receive("evaluation")["step"] < 50:
            pass
        sweep.process.send_signal(signal.SIGKILL)
        sweep.process.wait()
        again = self.start("--devices", "1", "--num-iterations", "400", "--save-every", "20", "--resume", "auto")
        known = again.receive("ready")["trials"]
        self.assertEqual([(trial["trial"], trial["state"]) for trial in known], [(0, "done"), (1, "waiting")])
        self.assertEqual(known[0]["val_loss"], first["val_loss"])
        again.send({"trial": 1, "options": {"seed": 1}})
        self.assertIn("already exists", again.receive("error")["message"])
        again.send({"trial": 2, "options": {"seed": 1, "matrix-lr": 0.02}})
        code, messages = again.wait()
        self.assertEqual(code, 0, again.errors)
        losses = {message["trial"]: message["val_loss"] for message in messages if message["event"] == "result"}
        self.assertEqual(losses[1], losses[2])  # as without an interruption
        log = (self.folder / "sweep/trials/0001/output.log").read_text()
        self.assertRegex(log, r"resuming at step [1-9]")

    def test_an_optimizer_that_goes_away_loses_nothing(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.receive("ready")
        sweep.send({"trial": 0, "options": {}})
        while sweep.receive("evaluation")["step"] < 10:
            pass
        sweep.process.stdout.close()
        self.assertEqual(sweep.process.wait(timeout=120), 3)
        self.assertIn("--ask-tell: cannot write to standard output: Broken pipe", sweep.process.stderr.read())
        self.assertTrue(any((self.folder / "sweep/trials/0000/checkpoints").iterdir()))

    def test_an_interrupt_saves_and_ends(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.receive("ready")
        sweep.send({"trial": 0, "options": {}})
        while sweep.receive("evaluation")["step"] < 10:
            pass
        sweep.process.send_signal(signal.SIGINT)
        self.assertEqual(sweep.process.wait(timeout=120), 130)
        self.assertTrue(any((self.folder / "sweep/trials/0000/checkpoints").iterdir()))

    def test_options_that_the_optimizer_gives_are_refused_at_the_start(self):
        for more, why in [(["--matrix-lr", "0.1,0.2"], "--ask-tell: values of --matrix-lr come with each trial"),
                          (["--trials", "3"], "leave out --trials"), (["--halving", "3"], "leave out --halving"),
                          (["--n-head", "3"], "n-head")]:
            run = subprocess.run([program, "sweep", *self.options(*more)], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn(why, run.stderr)
            self.assertFalse((self.folder / "sweep").exists())

    def test_optuna_searches(self):
        if subprocess.run([OPTUNA_PYTHON, "-c", "import optuna"], capture_output=True).returncode != 0:
            self.skipTest(f"{OPTUNA_PYTHON} has no package optuna: pip install optuna, or set MUO_TEST_PYTHON "
                          "to a python that has it")
        run = subprocess.run([OPTUNA_PYTHON, ROOT / "scripts/sweep_with_optuna.py", *self.options()[2:]],
                             env={**os.environ, "MUOGRAPH": program}, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = self.table()
        self.assertEqual([row["state"] for row in rows], ["done"] * 20)
        best = min(rows, key=lambda row: float(row["val_loss"]))
        self.assertIn(f"{float(best['val_loss']):.4f} nats per token", run.stdout)
        self.assertIn(best["matrix-lr"], run.stdout)


if __name__ == "__main__":
    program = str(pathlib.Path(sys.argv.pop(1)).resolve() / "muograph")
    unittest.main()
