#!/usr/bin/env python3
"""Loads what `muograph checkpoint export --hf` and `--hf-code` write with Hugging Face's transformers and compares
logits with ours.

    scripts/check_hf_export.py MUOGRAPH [--checkpoint DIR] [--out FILE.json]

MUOGRAPH is the program. Without --checkpoint it trains small models first, a second each: plain ones for the port of
nanochat in transformers, others for the code that goes beside the weights. Every logit after each of a few prompts has
to be within 1e-4, in fp32. Other values of fields of config.json have to be a hundred times as far off: a check that
they passed would see nothing. Padding on either side must change nothing, and generate() must go on as `sample` does.
Needs PyTorch and transformers, and writes what was measured to FILE.
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
LONG = (*PROMPTS, "12 times 12 is<|bos|>11 times ", TEXT[:250])
COMMON = ("--backend host --devices 2 --dtype fp32 --depth 3 --n-embd 64 --total-batch-size 1024 --num-iterations 40 "
          "--warmup-steps 5 --matrix-lr 0.6 --embedding-lr 3 --unembedding-lr 0.3 --eval-every -1 --sample-every -1")
MODELS = {
    "grouped queries": ("--hf", "--model plain --n-head 4 --n-kv-head 2 --max-seq-len 64"),
    "no soft-cap": ("--hf", "--model plain --n-head 2 --max-seq-len 64 --softcap 0"),
    "short windows as long as rows": ("--hf", "--model plain --n-head 1 --max-seq-len 128 --window-pattern SSL"),
    "nanochat's": ("--hf-code", "--n-head 4 --n-kv-head 2 --max-seq-len 256"),
    "nanochat's, of documents": ("--hf-code", "--n-head 2 --max-seq-len 256 --document-mask on --softcap 0"),
    "plain, with code": ("--hf-code", "--model plain --n-head 2 --max-seq-len 256 --qk-scale 0.9"),
}
# Other values of fields of config.json: the port's defaults, or those of its relatives.
WRONG = {
    "--hf": {
        "rope_theta 10000": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "final_logit_softcapping 15": {"final_logit_softcapping": 15.0},
        "final_logit_softcapping null": {"final_logit_softcapping": None},
        "hidden_act relu": {"hidden_act": "relu"},
    },
    "--hf-code": {
        "rope_base 10000": {"rope_base": 10000.0},
        "softcap 15": {"softcap": 15.0},
        "softcap 0": {"softcap": 0},
        "qk_scale 1": {"qk_scale": 1},
        "value_embeddings off": {"value_embeddings": False},
        "smear off": {"smear": False},
        "backout off": {"backout": False},
        "resid_lambdas off": {"resid_lambdas": False},
        "x0_lambdas off": {"x0_lambdas": False},
        "window_pattern L": {"window_pattern": "L"},
        "document_token -1": {"document_token": -1},
    },
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


def load(folder, option, **changes):
    words = {"trust_remote_code": True} if option == "--hf-code" else {}
    config = transformers.AutoConfig.from_pretrained(folder, **words, **changes)
    words.update({} if words else {"attn_implementation": "eager"})
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True, **words)
    wanted = {"--hf": "NanoChatForCausalLM", "--hf-code": "MuographForCausalLM"}[option]
    assert type(model).__name__ == wanted, type(model)
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


def padded_distance(model, wanted):
    """The largest difference of a logit where rows of a batch are padded, on the left and on the right."""
    longest = max(len(tokens) for tokens, _ in wanted)
    worst = 0.0
    for side in ("left", "right"):
        rows, masks = [], []
        for tokens, _ in wanted:
            padding = [0] * (longest - len(tokens))
            rows.append(padding + tokens if side == "left" else tokens + padding)
            seen = [1] * len(tokens)
            masks.append(padding + seen if side == "left" else seen + padding)
        with torch.no_grad():
            theirs = model(torch.tensor(rows), attention_mask=torch.tensor(masks)).logits.double()
        for row, (tokens, logits) in zip(theirs, wanted):
            last = row[-1] if side == "left" else row[len(tokens) - 1]
            worst = max(worst, (last - logits).abs().max().item())
    return worst


def generates_as_we_do(program, model, checkpoint, tokens):
    ours = run(program, "sample", checkpoint, "--backend", "host", "--dtype", "fp32", "--temperature", 0,
               "--max-tokens", 20, "--prompt", PROMPTS[2])
    theirs = model.generate(torch.tensor([tokens]), do_sample=False, max_new_tokens=20, pad_token_id=0)[0].tolist()
    text = bytes(token for token in theirs if token < 256).decode(errors="replace")
    return ours.rstrip("\n") == text.rstrip("\n")


def check(program, name, option, checkpoint, folder):
    run(program, "checkpoint", "export", checkpoint, option, folder)
    model, report = load(folder, option)
    if report:
        sys.exit(f"check_hf_export.py: {name}: not all tensors are the model's: {report}")
    prompts = PROMPTS if option == "--hf" else LONG
    wanted = [our_logits(program, checkpoint, prompt) for prompt in prompts]
    largest = max(logits.abs().max().item() for _, logits in wanted)
    result = {"model": name, "parameters": sum(p.numel() for p in model.parameters()),
              "logits": sum(len(logits) for _, logits in wanted), "largest_logit": round(largest, 3),
              "largest_difference": distance(model, wanted), "if_changed": {}}
    if option == "--hf-code":
        result["largest_difference_with_padding"] = padded_distance(model, wanted)
        if not generates_as_we_do(program, model, checkpoint, wanted[2][0]):
            sys.exit(f"check_hf_export.py: {name}: generate() gives another text than sample")
    for what, changes in WRONG[option].items():
        if all(getattr(model.config, key) == value for key, value in changes.items()):
            continue  # is what it is
        if any(getattr(model.config, key) is False for key in changes):
            continue  # has no weights to try
        result["if_changed"][what] = distance(load(folder, option, **changes)[0], wanted)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path, help="a run or checkpoint of bytes, for --hf-code")
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
            results.append(check(program, options.checkpoint.name, "--hf-code", options.checkpoint,
                                 folder / "exported"))
        else:
            for i, (model, (option, words)) in enumerate(MODELS.items()):
                run(program, "train", "--data", folder / "text.txt", "--out", folder / str(i), *COMMON.split(),
                    *words.split())
                results.append(check(program, model, option, folder / str(i), folder / f"exported_{i}"))
    failed = [result["model"] for result in results if max(
        result["largest_difference"], result.get("largest_difference_with_padding", 0)) > BOUND]
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
