#!/usr/bin/env python3
"""Loads what `muograph checkpoint export --hf` writes with Hugging Face's transformers and compares logits with ours.

    scripts/check_hf_export.py MUOGRAPH [--checkpoint DIR] [--out FILE.json]

MUOGRAPH is the program. Without --checkpoint it trains three small models first, a second each: grouped queries; no
soft-cap; rows so short that all windows see all. Every logit after each of a few prompts has to be within 1e-4, in
fp32. Other values of fields of config.json have to be a hundred times as far off: a check that they passed would see
nothing. Needs PyTorch and transformers, and writes what was measured to FILE.
"""
import argparse
import datetime
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

import torch
import transformers

BOUND = 1e-4  # logits of a few units: some hundred units of roundoff in fp32
FAR = 100 * BOUND
TEXT = "".join(f"{i} times {i} is {i * i}, and {i} and {i} are {2 * i}.\n" for i in range(3000))
PROMPTS = ("", "7", "12 times 12 is ", "the quick brown fox", "\u00e9\u4e16 \x01\t", TEXT[:60])
COMMON = ("--backend host --devices 2 --dtype fp32 --depth 3 --n-embd 64 --total-batch-size 1024 --num-iterations 40 "
          "--warmup-steps 5 --matrix-lr 0.6 --embedding-lr 3 --unembedding-lr 0.3 --eval-every -1 --sample-every -1")
MODELS = {
    "grouped queries": "--model plain --n-head 4 --n-kv-head 2 --max-seq-len 64",
    "no soft-cap": "--model plain --n-head 2 --max-seq-len 64 --softcap 0",
    "short windows as long as rows": "--model plain --n-head 1 --max-seq-len 128 --window-pattern SSL",
}
# Other values of fields of config.json: the port's defaults, or those of its relatives.
WRONG = {
    "rope_theta 10000": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "final_logit_softcapping 15": {"final_logit_softcapping": 15.0},
    "final_logit_softcapping null": {"final_logit_softcapping": None},
    "hidden_act relu": {"hidden_act": "relu"},
}


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"check_hf_export.py: {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def our_logits(program, checkpoint, prompt):
    """The context's tokens, and the logits by token."""
    said = json.loads(run(program, "sample", checkpoint, "--backend", "host", "--dtype", "fp32", "--logits", 1 << 16,
                          *(["--prompt", prompt] if prompt else [])))
    return said["context"], torch.tensor([logit for _, logit in sorted(said["logits"])], dtype=torch.float64)


def load(folder, **changes):
    config = transformers.AutoConfig.from_pretrained(folder, **changes)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert type(model).__name__ == "NanoChatForCausalLM", type(model)
    return model.eval(), {key: sorted(value) for key, value in report.items() if value}


def distance(model, wanted):
    """The largest difference of a logit, over all prompts."""
    worst = 0.0
    with torch.no_grad():
        for tokens, logits in wanted:
            theirs = model(torch.tensor([tokens])).logits[0, -1].double()
            assert theirs.shape == logits.shape, (theirs.shape, logits.shape)
            worst = max(worst, (theirs - logits).abs().max().item())
    return worst


def check(program, name, checkpoint, folder):
    run(program, "checkpoint", "export", checkpoint, "--hf", folder)
    model, report = load(folder)
    if report:
        sys.exit(f"check_hf_export.py: {name}: not all tensors are the port's: {report}")
    wanted = [our_logits(program, checkpoint, prompt) for prompt in PROMPTS]
    largest = max(logits.abs().max().item() for _, logits in wanted)
    result = {"model": name, "parameters": sum(p.numel() for p in model.parameters()),
              "logits": sum(len(logits) for _, logits in wanted), "largest_logit": round(largest, 3),
              "largest_difference": distance(model, wanted), "if_changed": {}}
    for what, changes in WRONG.items():
        if all(getattr(model.config, key) == value for key, value in changes.items()):
            continue  # is what it is
        result["if_changed"][what] = distance(load(folder, **changes)[0], wanted)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    program = options.program.resolve()
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(TEXT)
        if options.checkpoint:
            results.append(check(program, options.checkpoint.name, options.checkpoint, folder / "exported"))
        else:
            for i, (model, words) in enumerate(MODELS.items()):
                run(program, "train", "--data", folder / "text.txt", "--out", folder / str(i), *COMMON.split(),
                    *words.split())
                results.append(check(program, model, folder / str(i), folder / f"exported_{i}"))
    failed = [result["model"] for result in results if result["largest_difference"] > BOUND]
    blind = [result["model"] for result in results if not options.checkpoint and
             any(value < FAR for value in result["if_changed"].values())]
    report = {"command": " ".join(sys.argv), "date": f"{datetime.date.today()}",
              "version": run(program, "--version").strip(), "python": platform.python_version(),
              "torch": torch.__version__, "transformers": transformers.__version__, "bound": BOUND, "results": results}
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    if failed or blind:
        sys.exit(f"check_hf_export.py: logits differ by more than {BOUND}: {failed}; other configurations are nearer than "
                 f"{FAR}: {blind}")


if __name__ == "__main__":
    main()
