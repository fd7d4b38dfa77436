#!/usr/bin/env python3
"""Searches with Optuna: scripts/sweep_with_optuna.py OPTIONS, where OPTIONS are those of `muograph sweep`. Needs the
Python package optuna."""
import json
import os
import subprocess
import sys
import optuna

here = "build/release/muograph"  # in a clone
program = os.environ.get("MUOGRAPH", here if os.path.exists(here) else "muograph")
command = [program, "sweep", "--ask-tell", "on", *sys.argv[1:]]
sweep = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
study = optuna.create_study()
left = 20
for answer in map(json.loads, sweep.stdout):
    if answer["event"] == "error":
        sys.exit(answer["message"])
    if answer["event"] == "result":
        study.tell(answer["trial"], answer["val_loss"])  # null: the trial failed
    new = min(left, {"ready": answer.get("workers"), "result": 1}.get(answer["event"], 0))
    left -= new
    for trial in [study.ask() for _ in range(new)]:
        options = {"matrix-lr": trial.suggest_float("matrix-lr", 0.005, 0.5, log=True),
                   "weight-decay": trial.suggest_float("weight-decay", 0, 0.5)}
        print(json.dumps({"trial": trial.number, "options": options}), file=sweep.stdin, flush=True)
    if left == 0 and not sweep.stdin.closed:
        sweep.stdin.close()  # running trials are trained to their end
print(f"best: {study.best_params}, {study.best_value:.4f} nats per token", flush=True)
sys.exit(sweep.wait())
