#!/usr/bin/env python3
"""`muograph sweep --ask-tell` and an optimizer that is this test.      tests/system/ask_tell_test.py BUILD"""
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
    """A sweep under way in a process of its own."""

    def __init__(self, *options):
        self.process = subprocess.Popen([program, "sweep", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)

    def say(self, message):
        self.process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")

    def hear(self, *events):
        """The next message, of these events."""
        for line in self.process.stdout:
            message = json.loads(line)
            if not events or message["event"] in events:
                return message
        raise AssertionError("no such message: " + self.process.stderr.read())

    def end(self):
        """Exit code, and what was told until then."""
        self.process.stdin.close()
        told = [json.loads(line) for line in self.process.stdout]
        self.errors = self.process.stderr.read()
        return self.process.wait(), told


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
        ready = sweep.hear()
        self.assertEqual((ready["event"], ready["workers"], ready["trials"]), ("ready", 2, []))
        for i in range(5):
            sweep.say({"trial": i, "options": {"matrix-lr": 0.05 * (i + 1)}})
        sweep.say({"trial": "deep", "options": {"depth": 2, "matrix-lr": "0.1", "replicas": "own"}})
        code, told = sweep.end()
        self.assertEqual(code, 0, sweep.errors)
        self.assertIn("captures: ", sweep.errors)
        results = {message["trial"]: message for message in told if message["event"] == "result"}
        self.assertEqual(set(results), {0, 1, 2, 3, 4, "deep"})
        for row in self.table():
            result = results["deep" if row["trial"] == "5" else int(row["trial"])]
            self.assertEqual((row["state"], int(row["step"])), ("done", STEPS))
            self.assertEqual(float(row["val_loss"]), result["val_loss"])
            self.assertEqual(row["matrix-lr"], result["options"]["matrix-lr"])
            self.assertTrue(pathlib.Path(result["directory"], "metrics.jsonl").exists())
        self.assertEqual(len({result["val_loss"] for result in results.values()}), 6)
        steps = [message["step"] for message in told if message["event"] == "evaluation" and message["trial"] == 2]
        self.assertEqual(steps, [0, 10, STEPS])

    def test_what_is_wrong_is_answered_and_nothing_else_happens(self):
        sweep = self.start()
        sweep.hear("ready")
        sweep.say({"trial": 0, "options": {}})
        for line, why in [
                ('{"trial": 1', "malformed JSON"), ("[1]", "no object"), ('{"options": {}}', '"trial" is missing'),
                ('{"trial": -1, "options": {}}', '"trial" is missing, or neither'),
                ('{"trial": 1.5, "options": {}}', '"trial" is missing, or neither'),
                (json.dumps({"trial": "x" * 200, "options": {}}), "give at most 100"),
                ('{"trial": 0, "options": {}}', "trial 0 was given before"), ('{"trial": 1}', 'give "options"'),
                ('{"trial": 1, "trial": 2, "options": {}}', "occurs twice"),
                ('{"trial": 1, "options": {}, "stop": true}', 'give "options"'),
                ('{"trial": 1, "stop": true}', "there is no trial 1"), ('{"trial": 0, "stop": 1}', "not true"),
                ('{"trial": 1, "options": [1]}', "is no object"), ('{"trial": 1, "option": {}}', 'unknown key "option"'),
                ('{"trial": 1, "options": {"depht": 2}}', "did you mean depth?"),
                ('{"trial": 1, "options": {"devices": 2}}', "devices is the same for all trials"),
                ('{"trial": 1, "options": {"matrix-lr": [1]}}', "matrix-lr: [1] is no number"),
                ("x" * (3 << 20), "more than 1048576 bytes")]:
            sweep.say(line)
            answer = sweep.hear("error")
            self.assertIn(why, answer["message"])
            self.assertNotIn("\n", answer["message"])
        self.assertEqual(answer["line"], 19)
        sweep.say({"trial": 1, "options": {"matrix-lr": -1}})  # a value that cannot be is a trial's end
        code, told = sweep.end()
        self.assertEqual(code, 0, sweep.errors)
        self.assertEqual([row["state"] for row in self.table()], ["done", "refused"])
        refused = [message for message in told if message.get("state") == "refused"]
        self.assertIn("out of range", refused[0]["message"])

    def test_a_trial_is_stopped_running_or_waiting(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.hear("ready")
        sweep.say({"trial": 0, "options": {}})
        sweep.say({"trial": 1, "options": {"seed": 3}})
        while sweep.hear("evaluation")["step"] < 10:
            pass
        sweep.say({"trial": 1, "stop": True})
        waiting = sweep.hear("result")
        self.assertEqual((waiting["trial"], waiting["state"], waiting["step"]), (1, "stopped", 0))
        sweep.say({"trial": 0, "stop": True})
        sweep.say({"trial": 1, "stop": True})  # it has ended: nothing happens
        running = sweep.hear("result")
        self.assertEqual((running["trial"], running["state"]), (0, "stopped"))
        self.assertGreaterEqual(running["step"], 10)
        self.assertIsNotNone(running["val_loss"])
        self.assertTrue((self.folder / f"sweep/trials/0000/checkpoints/step_{running['step']:08d}").exists())
        code, told = sweep.end()
        self.assertEqual((code, told), (0, []), sweep.errors)

    def test_killed_and_resumed_it_knows_its_trials(self):
        sweep = self.start("--devices", "1", "--num-iterations", "400", "--save-every", "20")
        sweep.hear("ready")
        for i in range(2):
            sweep.say({"trial": i, "options": {"seed": i}})
        first = sweep.hear("result")
        while sweep.hear("evaluation")["step"] < 50:
            pass
        sweep.process.send_signal(signal.SIGKILL)
        sweep.process.wait()
        again = self.start("--devices", "1", "--num-iterations", "400", "--save-every", "20", "--resume", "auto")
        known = again.hear("ready")["trials"]
        self.assertEqual([(trial["trial"], trial["state"]) for trial in known], [(0, "done"), (1, "waiting")])
        self.assertEqual(known[0]["val_loss"], first["val_loss"])
        again.say({"trial": 1, "options": {"seed": 1}})
        self.assertIn("was given before", again.hear("error")["message"])
        again.say({"trial": 2, "options": {"seed": 1, "matrix-lr": 0.02}})
        code, told = again.end()
        self.assertEqual(code, 0, again.errors)
        losses = {message["trial"]: message["val_loss"] for message in told if message["event"] == "result"}
        self.assertEqual(losses[1], losses[2])  # the same, without an interruption
        log = (self.folder / "sweep/trials/0001/output.log").read_text()
        self.assertRegex(log, r"going on at step [1-9]")

    def test_an_optimizer_that_goes_away_loses_nothing(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.hear("ready")
        sweep.say({"trial": 0, "options": {}})
        while sweep.hear("evaluation")["step"] < 10:
            pass
        sweep.process.stdout.close()
        self.assertEqual(sweep.process.wait(timeout=120), 3)
        self.assertIn("--ask-tell: cannot write to standard output: Broken pipe", sweep.process.stderr.read())
        self.assertTrue(any((self.folder / "sweep/trials/0000/checkpoints").iterdir()))

    def test_an_interrupt_saves_and_ends(self):
        sweep = self.start("--num-iterations", "2000000", "--devices", "1")
        sweep.hear("ready")
        sweep.say({"trial": 0, "options": {}})
        while sweep.hear("evaluation")["step"] < 10:
            pass
        sweep.process.send_signal(signal.SIGINT)
        self.assertEqual(sweep.process.wait(timeout=120), 130)
        self.assertTrue(any((self.folder / "sweep/trials/0000/checkpoints").iterdir()))

    def test_options_that_the_optimizer_gives_are_refused_at_the_start(self):
        for more, why in [(["--matrix-lr", "0.1,0.2"], "--ask-tell: the values of --matrix-lr come with each trial"),
                          (["--trials", "3"], "no --trials"), (["--halving", "3"], "no --halving"),
                          (["--n-head", "3"], "n-head")]:
            run = subprocess.run([program, "sweep", *self.options(*more)], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn(why, run.stderr)
            self.assertFalse((self.folder / "sweep").exists())

    def test_optuna_searches(self):
        if subprocess.run([OPTUNA_PYTHON, "-c", "import optuna"], capture_output=True).returncode != 0:
            self.skipTest(f"{OPTUNA_PYTHON} has no package optuna: pip install optuna, or say with MUO_TEST_PYTHON "
                          "which python has it")
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
