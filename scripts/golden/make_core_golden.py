#!/usr/bin/env python3
"""Writes tests/golden/core/: a synthetic bundle of CORE tasks, and nanochat's own results on it.

    PyTorch, jinja2, PyYAML and a checkout of nanochat:
    python scripts/golden/make_core_golden.py --nanochat PATH                  # writes the files
    python scripts/golden/make_core_golden.py --nanochat PATH --check          # compares them
    python scripts/golden/make_core_golden.py --nanochat PATH --model EXPORTED # evaluates a model

Imports nanochat's core_eval.py and runs it with a tokenizer of bytes; tests/golden/README.md describes the files.
EXPORTED is an output folder of `muograph checkpoint export` for a model of bytes, whose accuracies by nanochat on
--bundle are printed as JSON.
"""
import argparse
import csv
import importlib
import json
import pathlib
import random
import struct
import sys

import torch
import yaml

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/core"
BOS = 256
YAML = """\
icl_tasks:
-
  label: animals
  dataset_uri: reading/animals.jsonl  # queries with choices
  num_fewshot: [2, 5]
  icl_task_type: multiple_choice
  continuation_delimiter: "\\nAnswer: "
-
  label: animals_zeroshot
  dataset_uri: reading/animals.jsonl
  num_fewshot: [0]
  icl_task_type: multiple_choice
- {label: pronouns, dataset_uri: pronouns.jsonl, num_fewshot: [1], icl_task_type: schema}
- label: "last words"
  dataset_uri: words.jsonl
  num_fewshot:
  - 3
  icl_task_type: language_modeling
  continuation_delimiter: ''
  has_categories: true
- label: sums
  dataset_uri: sums.jsonl
  num_fewshot: [6]
  icl_task_type: language_modeling
  continuation_delimiter: " = "
"""
# Has quoted fields, an additional column, and rows of unknown tasks.
META = ('Eval Task,Description,Random baseline\r\n'
        'animals,"Which, of ""several""\nchoices",25\r\n'
        'animals_zeroshot,,25.0\r\n'
        'other,,1\r\n'
        'pronouns,who,50\r\n'
        'last words,,0\r\n'
        'sums,,0.5\r\n')


def items():
    """The items by file: with choices that are prefixes of others, white space at the ends of contexts, characters of
    several bytes, and numbers instead of texts."""
    names = ["cat", "dog", "owl", "hen", "ant", "bee", "cow"]
    sounds = ["mew", "bark", "hoot", "cluck", "run", "hum", "moo"]
    animals = [{"query": f"What does the {name} do?", "gold": i % 4, "choices":
                [sounds[(i - i % 4 + j) % 7] + (" a lot" if j == (i + 1) % 4 else "") for j in range(4)]}
               for i, name in enumerate(names)]
    animals[2]["choices"] = ["10", "100", 7, "\u00fcber"]
    animals[5]["query"] = "  Tabs\tand \u4e2d\u6587 {{ braces }}"
    pronouns = [{"context_options": [f"The {a} saw the {b} and the {a}", f"The {a} saw the {b} and the {b}"],
                 "continuation": f"ran {'far ' * (i % 3)}away.", "gold": i % 2}
                for i, (a, b) in enumerate(zip(names, names[1:]))]
    words = [{"context": f"{' ' * (i % 2)}one two {'three' * (i % 3)}{tail}", "continuation": f"{' ' if i % 2 else ''}w{i}"}
             for i, tail in enumerate(["", " ", "\n", "\u00a0", "\t \u2003", "x"])]
    numbers = [{"context": f"{i} + {i * 7 % 10} ", "continuation": str(i + i * 7 % 10)} for i in range(24)]
    numbers[3]["continuation"] = 4
    return {"reading/animals.jsonl": animals, "pronouns.jsonl": pronouns, "words.jsonl": words, "sums.jsonl": numbers}


def hellaswag():
    random.seed(3)
    texts = ["A man sits on a roof. he", "She opens", "Two dogs \u00e9t\u00e9", "The end"]
    return [{"ind": i, "ctx": text, "label": i * 3 % 4,
             "endings": ["".join(random.choices("abc de", k=3 + j + i)) + "." for j in range(4)]}
            for i, text in enumerate(texts)]


def eval_file(examples):
    """Writes llm.c's format: data/examples/hellaswag.h."""
    stream, longest = [], 0
    for index, example in enumerate(examples):
        context = list(example["ctx"].encode())
        words = [65535, 0, index, example["label"], len(example["endings"]), len(context), *context]
        for ending in example["endings"]:
            ids = list((" " + ending).encode())
            words += [len(ids), *ids]
        words[1] = 2 * len(words)
        longest = max(longest, words[1])
        stream += words
    header = [20240522, 1, len(examples), longest] + [0] * 252
    return struct.pack("<256i", *header) + struct.pack(f"<{len(stream)}H", *stream)


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


class Bytes:
    """The byte tokenizer with the interface of core_eval."""

    def get_bos_token_id(self):
        return BOS

    def __call__(self, texts, prepend):
        return [[prepend, *text.encode()] for text in texts]


def tasks_of(bundle, max_per_task):
    """Reads a bundle like nanochat's evaluate_core(); adds to each item its line in the file."""
    baselines = {}
    with open(bundle / "eval_meta_data.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            baselines[row["Eval Task"]] = float(row["Random baseline"])
    for task in yaml.safe_load((bundle / "core.yaml").read_text(encoding="utf-8"))["icl_tasks"]:
        meta = {"task_type": task["icl_task_type"], "num_fewshot": task["num_fewshot"][0],
                "continuation_delimiter": task.get("continuation_delimiter", " ")}
        lines = (bundle / "eval_data" / task["dataset_uri"]).read_text(encoding="utf-8").splitlines()
        data = [{**json.loads(line), "line": i + 1} for i, line in enumerate(lines)]
        random.Random(1337).shuffle(data)
        yield task["label"], meta, data[:max_per_task], baselines[task["label"]]


def prompts_of(core_eval, meta, data, index):
    """The prompts that evaluate_example() passes on, intercepted."""
    seen = {}

    def catch(name):
        original = getattr(core_eval, name)

        def caught(*arguments):
            out = original(*arguments)
            seen[name.split("_")[0]] = (arguments, out)
            return out
        return original, caught

    names = [f"{part}_{kind}" for part in ("render_prompts", "batch_sequences") for kind in ("mc", "schema", "lm")]
    originals = {}
    for name in names:
        originals[name], caught = catch(name)
        setattr(core_eval, name, caught)
    zeros = lambda ids: torch.zeros(*ids.shape, BOS + 1)  # noqa: E731
    core_eval.evaluate_example(index, zeros, Bytes(), data, "cpu", meta)
    for name, original in originals.items():
        setattr(core_eval, name, original)
    (item, _, shots), prompts = seen["render"]
    _, (_, starts, ends) = seen["batch"]
    return {"line": item["line"], "shots": [shot["line"] for shot in shots], "prompts": prompts,
            "starts": starts, "ends": ends}


def files_of():
    files = {"bundle/core.yaml": YAML.encode(), "bundle/eval_meta_data.csv": META.encode(),
             "hellaswag.jsonl": json_lines(hellaswag()), "hellaswag.bin": eval_file(hellaswag())}
    for name, rows in items().items():
        files[f"bundle/eval_data/{name}"] = json_lines(rows)
    return files


def expected(core_eval, bundle):
    out = []
    for label, meta, data, baseline in tasks_of(bundle, 8):
        for index in (0, 2, 5):
            out.append({"label": label, "index": index, "baseline": baseline,
                        **prompts_of(core_eval, meta, data, index)})
    return json_lines(out)


def evaluate(core_eval, exported, bundle, max_per_task):
    import safetensors.torch
    gpt = importlib.import_module("nanochat.gpt")
    meta = json.loads(next(exported.glob("meta_*.json")).read_text())
    config = gpt.GPTConfig(**meta["model_config"])
    model = gpt.GPT(config)
    model.init_weights()
    state = safetensors.torch.load_file(next(exported.glob("model_*.safetensors")))
    model.load_state_dict(state, strict=True)
    model.float().eval()
    results, centred = {}, {}
    for label, task, data, baseline in tasks_of(bundle, max_per_task):
        results[label] = core_eval.evaluate_task(model, Bytes(), data, "cpu", task)
        centred[label] = (results[label] - 0.01 * baseline) / (1.0 - 0.01 * baseline)
    print(json.dumps({"results": results, "centered_results": centred,
                      "core_metric": sum(centred.values()) / len(centred)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanochat", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--bundle", type=pathlib.Path, default=GOLDEN / "bundle")
    parser.add_argument("--max-per-task", type=int)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.nanochat))
    sys.dont_write_bytecode = True
    core_eval = importlib.import_module("nanochat.core_eval")
    if arguments.model:
        evaluate(core_eval, arguments.model, arguments.bundle, arguments.max_per_task)
        return 0
    different = []

    def put(name, data):
        path = GOLDEN / name
        if arguments.check:
            different.extend([name] if not path.is_file() or path.read_bytes() != data else [])
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    for name, data in files_of().items():
        put(name, data)
    put("prompts.jsonl", expected(core_eval, GOLDEN / "bundle"))
    for name in different:
        print(f"{name} differs")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
