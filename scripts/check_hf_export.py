#!/usr/bin/env python3
"""Loads models written by `muograph checkpoint export --hf` and `--hf-code` with Hugging Face's transformers, 4.57 or
5, and compares logits and texts with ours.

    scripts/check_hf_export.py MUOGRAPH [--checkpoint DIR] [--out FILE.json]

MUOGRAPH is the program. Without --checkpoint it first trains small models, a second each: plain ones for the nanochat
port in transformers 5, others for the code exported beside the weights. After each of a few prompts, every logit must
be within 1e-4, in fp32. Wrong values of fields in config.json must change logits by a hundred times that, which proves
that the check is sensitive. Tokenizers must give our ids without asking to trust code; generate() and pipeline() must
continue texts as `sample` does; the lines of code that the export prints must run; Trainer must take the same step with
any gradient accumulation; and arguments of forward() must behave as in the port. Needs PyTorch, transformers and
accelerate, and writes the measurements to FILE.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest.mock

os.environ["HF_HUB_OFFLINE"] = "1"  # before importing transformers
import torch
import transformers

BOUND = 1e-4  # logits are a few units, so this is some hundred roundoff errors in fp32
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
    "with a tokenizer of its own": ("--hf-code", "--n-head 2 --max-seq-len 256 --tokenizer {folder}/tokenizer.json"),
}
HAS_PORT = importlib.util.find_spec("transformers.models.nanochat") is not None
# Wrong values for fields of config.json: defaults of the port or of related models.
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
    """The tokens of the context and the logits by token."""
    said = json.loads(run(program, "sample", checkpoint, "--backend", "host", "--dtype", "fp32", "--logits", 1 << 16,
                          *(["--prompt", prompt] if prompt else [])))
    return said["context"], torch.tensor([logit for _, logit in sorted(said["logits"])], dtype=torch.float64)


def trusting(option):
    """Arguments that allow the code of an export to run."""
    return {"trust_remote_code": True} if option == "--hf-code" else {}


def load(folder, option, **changes):
    words = trusting(option)
    config = transformers.AutoConfig.from_pretrained(folder, **words, **changes)
    words.update({} if words else {"attn_implementation": "eager"})
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True, **words)
    wanted = {"--hf": "NanoChatForCausalLM", "--hf-code": "MuographForCausalLM"}[option]
    assert type(model).__name__ == wanted, type(model)
    return model.eval(), {key: sorted(value) for key, value in report.items() if value}


@torch.no_grad()
def distance(model, wanted):
    """The largest difference of a logit over all prompts."""
    worst = 0.0
    for tokens, logits in wanted:
        theirs = model(torch.tensor([tokens])).logits[0, -1].double()
        assert theirs.shape == logits.shape, (theirs.shape, logits.shape)
        worst = max(worst, (theirs - logits).abs().max().item())
    return worst


@torch.no_grad()
def padded_distance(model, wanted):
    """The largest difference of a logit in batches whose rows are padded on the left and on the right."""
    longest = max(len(tokens) for tokens, _ in wanted)
    worst = 0.0
    for side in ("left", "right"):
        rows, masks = [], []
        for tokens, _ in wanted:
            padding = [0] * (longest - len(tokens))
            rows.append(padding + tokens if side == "left" else tokens + padding)
            seen = [1] * len(tokens)
            masks.append(padding + seen if side == "left" else seen + padding)
        theirs = model(torch.tensor(rows), attention_mask=torch.tensor(masks)).logits.double()
        for row, (tokens, logits) in zip(theirs, wanted):
            last = row[-1] if side == "left" else row[len(tokens) - 1]
            worst = max(worst, (last - logits).abs().max().item())
    return worst


def packed(texts):
    """Texts packed into one row and their positions."""
    return (torch.tensor([sum(texts, [])]), torch.tensor([[at for text in texts for at in range(len(text))]]))


def tensors_of(output):
    for each in output if isinstance(output, tuple) else output.to_tuple():
        yield from each if isinstance(each, tuple) else (each,)


@torch.no_grad()
def wrong_arguments(model, wanted):
    """Yields arguments of forward() that behave differently than in other models of transformers."""
    texts = [tokens for tokens, _ in wanted]
    row, positions = packed(texts)
    together, begin = model(row, position_ids=positions).logits[0], 0
    for tokens in texts:
        alone = model(torch.tensor([tokens])).logits[0]
        if (together[begin:begin + len(tokens)] - alone).abs().max() > BOUND:
            yield f"a text of {len(tokens)} tokens that is packed has other logits than alone"
        begin += len(tokens)
    text = torch.tensor([texts[-1]])
    usual, later = model(text).logits, model(text, position_ids=torch.arange(7, 7 + text.size(1))[None]).logits
    if (usual - later).abs().max() > BOUND:
        yield "logits at later positions differ"
    for name, value in {"past_key_values": object(), "inputs_embeds": usual, "output_attentions": True}.items():
        try:
            model(text, **{name: value})
            yield f"{name} is not refused"
        except ValueError as error:
            if name not in str(error):
                yield f"{name} is refused without its name: {error}"


@torch.no_grad()
def differences_from_port(model, port, wanted):
    """Yields arguments for which a model's results differ from those of the port with the same weights."""
    row, positions = (each[:, :model.config.seq_len] for each in packed([tokens for tokens, _ in wanted]))
    labels = torch.where(row % 3 == 0, -100, row)
    for words in ({}, {"return_dict": False}, {"logits_to_keep": 1}, {"logits_to_keep": torch.tensor([0, 5])},
                  {"output_hidden_states": True}, {"position_ids": positions}, {"labels": labels},
                  {"labels": labels, "num_items_in_batch": torch.tensor(7)}, {"position_ids": positions + 3},
                  {"position_ids": positions, "attention_mask": torch.ones_like(row)}):
        ours, theirs = (each(row, use_cache=False, **words) for each in (model, port))
        a, b = list(tensors_of(ours)), list(tensors_of(theirs))
        if isinstance(ours, tuple) != isinstance(theirs, tuple) or [x.shape for x in a] != [x.shape for x in b]:
            yield f"forward({', '.join(words)}) gives {[x.shape for x in a]}, the port {[x.shape for x in b]}"
        elif max((x - y).abs().max().item() for x, y in zip(a, b)) > BOUND:
            yield f"forward({', '.join(words)}) gives other values than the port"


def wrong_texts(program, option, checkpoint, folder, model, wanted):
    """Yields differences between `sample` and the tokenizer, generate() and pipeline()."""
    # transformers 5 reads config.json first and would ask whether to trust its code.
    said = {"trust_remote_code": False} if HAS_PORT else {}
    with unittest.mock.patch("builtins.input", return_value="n") as question:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **said)
    if question.called:
        yield "AutoTokenizer asks whether code may run"
    for prompt, (tokens, _) in zip(LONG, wanted):
        if tokenizer(prompt)["input_ids"] != tokens:
            yield f"{prompt!r} has the ids {tokenizer(prompt)['input_ids']}, not {tokens}"
        if tokenizer.decode(tokens[1:]) != prompt:
            yield f"the ids of {prompt!r} are decoded to {tokenizer.decode(tokens[1:])!r}"
    every = "".join(map(chr, range(0x800))) + "\u4e16\U0001f600\U0010ffff"
    if len(tokenizer) == 257 and tokenizer(every)["input_ids"] != [256, *every.encode()]:
        yield "tokens of bytes are not bytes"
    prompt = PROMPTS[2]
    ours = run(program, "sample", checkpoint, "--backend", "host", "--dtype", "fp32", "--temperature", 0,
               "--max-tokens", 20, "--prompt", prompt).rstrip("\n")
    words = {"do_sample": False, "max_new_tokens": 20}
    for more in ({}, {"use_cache": True}, {"output_hidden_states": True}):
        tokens = model.generate(**tokenizer(prompt, return_tensors="pt"), **words, **more)[0]
        text = tokenizer.decode(tokens, skip_special_tokens=True).rstrip("\n")
        if text != ours:
            yield f"generate({more}) gives {text!r}, sample {ours!r}"
    generate = transformers.pipeline("text-generation", model=str(folder), **trusting(option))
    text = generate(prompt, **words)[0]["generated_text"].rstrip("\n")
    if text != ours:
        yield f"pipeline() gives {text!r}, sample {ours!r}"


def wrong_lines(said):
    """Yields an error unless the last three lines of the export's output can be executed."""
    done = subprocess.run([sys.executable, "-c", "\n".join(said.splitlines()[-3:])], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not done.stdout.startswith("Once upon a time"):
        yield f"the lines that load the model end with exit code {done.returncode}: {done.stdout}{done.stderr}"


def trainer_step(folder, accumulated, out):
    """Loss and gradient norm that Trainer reports for a step of eight rows, and the expected loss."""
    model, _ = load(folder, "--hf-code")
    text = torch.tensor(list(TEXT.encode()[:512])).view(8, 64)
    at = torch.arange(64)
    labels = torch.stack([torch.where(at < 1 + 7 * i, -100, row) for i, row in enumerate(text)])  # rows have different numbers of labels
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(text).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    arguments = transformers.TrainingArguments(
        output_dir=str(out), per_device_train_batch_size=8 // accumulated, gradient_accumulation_steps=accumulated,
        max_steps=1, optim="sgd", max_grad_norm=1e9, logging_steps=1, report_to="none", save_strategy="no",
        use_cpu=True, disable_tqdm=True)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=[
        {"input_ids": row, "labels": label} for row, label in zip(text, labels)])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    said = trainer.state.log_history[0]
    return said["loss"], said["grad_norm"], loss.item()


def wrong_training(folder, out, result):
    steps = {accumulated: trainer_step(folder, accumulated, out) for accumulated in (1, 2, 8)}
    result["trainer_loss_and_norm"] = {accumulated: step[:2] for accumulated, step in steps.items()}
    for accumulated, (loss, norm, expected) in steps.items():
        if abs(loss / expected - 1) > 1e-3 or abs(norm / steps[1][1] - 1) > 1e-3:
            yield f"Trainer has loss {loss}, not {expected}, norm {norm}, not {steps[1][1]}, in {accumulated} parts"


def check(program, name, option, checkpoint, folder):
    said = run(program, "checkpoint", "export", checkpoint, option, folder)
    model, report = load(folder, option)
    wrong = [f"not all tensors are the model's: {report}"] if report else []
    wanted = [our_logits(program, checkpoint, prompt) for prompt in (PROMPTS if option == "--hf" else LONG)]
    largest = max(logits.abs().max().item() for _, logits in wanted)
    result = {"model": name, "parameters": sum(p.numel() for p in model.parameters()),
              "logits": sum(len(logits) for _, logits in wanted), "largest_logit": round(largest, 3),
              "largest_difference": distance(model, wanted), "if_changed": {}}
    wrong += wrong_texts(program, option, checkpoint, folder, model, wanted)
    wrong += wrong_lines(said)
    if option == "--hf-code":
        result["largest_difference_with_padding"] = padded_distance(model, wanted)
        wrong += wrong_arguments(model, wanted)
        wrong += wrong_training(folder, folder.with_name(f"{folder.name}_trained"), result)
    else:
        with_code = folder.with_name(f"{folder.name}_code")
        run(program, "checkpoint", "export", checkpoint, "--hf-code", with_code)
        wrong += differences_from_port(load(with_code, "--hf-code")[0], model, wanted)
    for what, changes in WRONG[option].items():
        if all(getattr(model.config, key) == value for key, value in changes.items()):
            continue  # already has that value
        if any(getattr(model.config, key) is False for key in changes):
            continue  # lacks these weights
        result["if_changed"][what] = distance(load(folder, option, **changes)[0], wanted)
    result["wrong"] = wrong
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
            run(program, "tokenizer", "train", "--data", folder / "text.txt", "--vocab-size", 270, "--out",
                folder / "tokenizer.json")
            for i, (model, (option, words)) in enumerate(MODELS.items()):
                if option == "--hf" and not HAS_PORT:
                    continue
                run(program, "train", "--data", folder / "text.txt", "--out", folder / str(i), *COMMON.split(),
                    *words.format(folder=folder).split())
                results.append(check(program, model, option, folder / str(i), folder / f"exported_{i}"))
    failed = [result["model"] for result in results if max(
        result["largest_difference"], result.get("largest_difference_with_padding", 0)) > BOUND]
    wrong = [f"{result['model']}: {what}" for result in results for what in result.pop("wrong")]
    blind = [result["model"] for result in results if not options.checkpoint and
             any(value < FAR for value in result["if_changed"].values())]
    report = {"command": " ".join(sys.argv), "date": f"{datetime.date.today()}",
              "version": run(program, "--version").strip(), "python": platform.python_version(),
              "torch": torch.__version__, "transformers": transformers.__version__, "bound": BOUND, "results": results}
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    if wrong:
        sys.exit("check_hf_export.py: " + "\n".join(wrong))
    if failed or blind:
        sys.exit(f"check_hf_export.py: logits differ by more than {BOUND}: {failed}; other configurations are nearer than "
                 f"{FAR}: {blind}")


if __name__ == "__main__":
    main()
