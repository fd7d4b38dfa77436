#!/usr/bin/env python3
"""Reads a run directory with TensorBoard's package and compares the result with the run's files.

  scripts/check_tensorboard.py RUN [--serve]

Exactly the numbers of metrics.jsonl, rounded to fp32, must be present once; config.toml and samples as text; and the
options as hyper-parameters. --serve: also starts `tensorboard --logdir RUN` with each of its two readers, and compares
the curves that it serves over HTTP. Needs the Python package tensorboard.
"""
import argparse
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import time
import urllib.request

TRAIN = ("loss", "lr_multiplier", "muon_momentum", "muon_weight_decay", "grad_norm", "step_ms", "tokens_per_s", "mfu")
EVAL = ("val_loss", "val_bpb")
UPDATE = re.compile(r"(\w+?)_(u_rms|rms|ratio)")
MOST_SECONDS = 60  # maximum time until a server has read a run


def fail(text):
    sys.exit(f"check_tensorboard.py: {text}")


def as_float32(number):
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def logged(run):
    """Maps tags to [step, value] of metrics.jsonl, including steps with non-finite values, which are NaN."""
    curves = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in record.items():
            of_update = UPDATE.fullmatch(name) if record["kind"] == "update" else None
            tag = f"update_{of_update[2]}/{of_update[1]}" if of_update else f"{record['kind']}/{name}"
            if not of_update and name not in {"train": TRAIN, "eval": EVAL}.get(record["kind"], ()):
                continue
            if value is None and (not record.get("nonfinite") or name in ("mfu", "val_bpb") or tag.startswith("update_ratio")):
                continue
            value = math.nan if value is None else as_float32(value)
            curves.setdefault(tag, []).append((record["step"], value))
    return curves


def compare(want, have, reader):
    """Compares two maps. Non-finite values only need to be non-finite, because the log does not store which they
    were."""
    for tag, points in want.items():
        got = [(step, value if math.isfinite(value) else math.nan) for step, value in have.get(tag, [])]
        if repr(got) != repr(points):
            differing = next(((w, g) for w, g in zip(points, got) if repr(w) != repr(g)), (len(points), len(got)))
            fail(f"{tag}: {reader} differs from metrics.jsonl: {differing[1]}, not {differing[0]}")
    for tag in set(have) - set(want) - {"train/bpb"}:
        fail(f"{tag}: shown by {reader}, but missing in metrics.jsonl")


def read(run):
    """Reads scalars, texts and hyper-parameters with TensorBoard's Python reader."""
    from tensorboard.backend.event_processing import plugin_event_accumulator, plugin_event_multiplexer
    from tensorboard.plugins.hparams import metadata as hparams_metadata
    from tensorboard.util import tensor_util

    multiplexer = plugin_event_multiplexer.EventMultiplexer(size_guidance={plugin_event_accumulator.TENSORS: 0})
    multiplexer.AddRun(str(run), "run")
    multiplexer.Reload()
    scalars, texts, hparams = {}, {}, {}
    for tag in multiplexer.Runs()["run"]["tensors"]:
        plugin = multiplexer.SummaryMetadata("run", tag).plugin_data
        points = [(e.step, tensor_util.make_ndarray(e.tensor_proto)) for e in multiplexer.Tensors("run", tag)]
        if plugin.plugin_name == "scalars":
            scalars[tag] = [(step, float(value)) for step, value in points]
        elif plugin.plugin_name == "text":
            texts[tag] = [(step, value.item().decode()) for step, value in points]
        elif plugin.plugin_name == "hparams":
            info = hparams_metadata.parse_session_start_info_plugin_data(plugin.content)
            hparams = {name: getattr(value, value.WhichOneof("kind")) for name, value in info.hparams.items()}
        else:
            fail(f"{tag}: belongs to the plug-in '{plugin.plugin_name}', for which runs write nothing")
    return scalars, texts, hparams


def check_texts(run, texts, hparams):
    """Checks that the last text 'config' is config.toml and that the hyper-parameters are those of a run's first
    start."""
    literal = "\n".join("    " + line for line in (run / "config.toml").read_text().split("\n"))
    configs = [text for _, text in texts.get("config", [])]
    if literal not in configs[-1:]:
        fail(f"{run}: the text 'config' is not config.toml")
    if "seed" not in hparams:
        fail(f"{run}: hyper-parameters without 'seed': {sorted(hparams)}")
    for name, value in hparams.items():
        if isinstance(value, bool):
            shown = ["true" if value else "false"]
        else:
            shown = [f'"{value}"'] if isinstance(value, str) else [repr(value), f"{value:.15g}"]
        if not any(f"    {name} = {text}\n" in config for text in shown for config in configs):
            fail(f"{run}: hyper-parameter {name} is {value}, which is not in config.toml")


def served(run, fast):
    """Starts TensorBoard and returns the scalars that it serves to its page."""
    program = pathlib.Path(sys.executable).parent / "tensorboard"
    command = [program, "--logdir", run, "--port", "0", "--host", "localhost", f"--load_fast={fast}",
               "--samples_per_plugin", f"scalars={1 << 20}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, NO_PROXY="localhost")) as server:
        try:
            url = next((found[0] for line in server.stderr if (found := re.search(r"http://localhost:\d+/", line))),
                       None)
            if url is None:
                fail(f"TensorBoard ended with code {server.wait()} before it served")

            def get(path):
                with urllib.request.urlopen(f"{url}data/plugin/{path}", timeout=MOST_SECONDS) as answer:
                    return json.load(answer)

            tags, end = None, time.monotonic() + MOST_SECONDS
            while time.monotonic() < end:  # until its data no longer changes
                before, tags = tags, get("scalars/tags")
                if tags and tags == before:
                    break
                time.sleep(1)
            return {tag: [(step, float(value)) for _, step, value in get(f"scalars/scalars?run=.&tag={tag}")]
                    for tag in tags.get(".", ())}
        finally:
            server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--serve", action="store_true", help="also start TensorBoard and query it")
    options = parser.parse_args()
    if not (options.run / "metrics.jsonl").is_file():
        fail(f"{options.run}: no metrics.jsonl: give the directory of a run")
    try:
        scalars, texts, hparams = read(options.run)
    except ImportError as error:
        fail(f"the Python package tensorboard is missing ({error}): pip install tensorboard")
    want = logged(options.run)
    compare(want, scalars, "TensorBoard")
    check_texts(options.run, texts, hparams)
    if options.serve:
        for fast in ("true", "false"):
            compare(want, served(options.run, fast), f"TensorBoard with --load_fast={fast}")
    print(f"{options.run}: {len(want.get('train/loss', ()))} steps, {len(want.get('eval/val_loss', ()))} evaluations, "
          f"{len(texts.get('sample', ()))} samples, {len(hparams)} hyper-parameters: as in its files")


if __name__ == "__main__":
    main()
