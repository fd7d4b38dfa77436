#include <algorithm>
#include <iterator>
#include <utility>

#include "app/options/option_table.h"

namespace muo::app {
namespace {

using enum OptionClass;

constexpr OptionGroup kData{kDataGroup};
constexpr OptionGroup kDevices{kDevicesGroup};
constexpr OptionGroup kRun{kRunGroup};
constexpr OptionGroup kText{"Text"};
constexpr OptionGroup kFiles{"Files"};

OptionRow backend_row(std::optional<Backend>& backend, OptionClass kind) {
  return kDevices("backend", kind, "NAME",
                  "host: devices on the CPU; cuda: GPUs; auto: GPUs if any", &backend);
}

OptionRow dtype_row(std::optional<DType>& dtype) {
  return kDevices("dtype", kOther, "fp32|bf16", "to compute in; auto: the run's", &dtype);
}

OptionRow tokenizer_row(std::string& tokenizer, const OptionGroup& group) {
  return group("tokenizer", kOther, "FILE", "byte, tokenizer.json, SentencePiece, tiktoken's ranks",
               &tokenizer)
      .needed();
}

std::vector<OptionRow> text_rows(TextOptions& o) {
  return {
      kData("field", kOther, "NAME", "of JSON Lines: the one that holds the text", &o.field),
      kData("document-separator", kOther, "TEXT", "ends a document within a text", &o.separator),
      kData("skip-bad-lines", kOther, "on|off", "count lines of JSON that hold no text, and go on",
            &o.skip_bad_lines),
  };
}

OptionRow checkpoint_row(std::string& checkpoint, const OptionGroup& group,
                         std::string_view help = "a checkpoint, or a run directory (its newest)") {
  OptionRow row = group("checkpoint", kOther, "DIR", help, &checkpoint).needed();
  row.positional = true;
  return row;
}

}  // namespace

std::vector<OptionRow> device_rows(DeviceOptions& o, OptionClass kind) {
  return {
      backend_row(o.backend, kind),
      kDevices("devices", kind, "N", "auto: all GPUs, or the cores, at most 4", &o.count, {1, 256})
          .replacing({"device-batch-size"})
          .training(),
      kDevices("ranks-per-device", kind, "N", "virtual ranks on each GPU", &o.ranks_per_device,
               {1, 8})
          .replacing({"device-batch-size"}),
      kDevices("comm", kind, "NAME", "between GPUs; auto: nccl, or peer where ranks share one",
               &o.comm),
  };
}

std::vector<OptionRow> option_table(EvalOptions& o) {
  std::vector<OptionRow> table = {
      checkpoint_row(o.checkpoint, kRun),
      kData("data", kOther, "PATH...", "without it, the held-out data of the run", &o.data.paths),
      kData("data-max-bytes", kOther, "BYTES", "use whole text files until this many bytes; 0: all",
            &o.data.max_bytes, {0, kMostTokens}),
      kData("eval-tokens", kOther, "TOKENS", "auto: all of it", &o.tokens, {1, kMostTokens}),
      kData("packing", kOther, "NAME", "as-trained, or as train --packing",
            NamedField(&o.packing, "as-trained")),
  };
  const OptionGroup examples{kExamplesGroup};
  std::ranges::move(
      std::vector<OptionRow>{
          examples("hellaswag", kOther, "FILE", "HellaSwag's .jsonl, or llm.c's .bin of it",
                   &o.examples.hellaswag),
          examples("core", kOther, "DIR", "nanochat's bundle of the CORE metric's tasks",
                   &o.examples.core),
          examples("max-per-task", kOther, "N", "examples of each task; 0: all",
                   &o.examples.max_per_task, {0, kMostTokens}),
          examples("row-tokens", kOther, "TOKENS",
                   "longer prompts lose their beginning; auto: as in training",
                   &o.examples.row_tokens, {2, kMostRows}),
      },
      std::back_inserter(table));
  std::ranges::move(device_rows(o.devices, kOther), std::back_inserter(table));
  table.push_back(kDevices("device-batch-size", kOther, "ROWS",
                           "per device at a time; auto: 4,096 tokens, GPUs 65,536", &o.device_rows,
                           {1, kMostRows}));
  table.push_back(dtype_row(o.dtype));
  return table;
}

std::vector<OptionRow> option_table(SampleOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kRun),
      kText("prompt", kOther, "TEXT", "what samples continue, again for more; none: a new document",
            &o.prompts),
      kText("prompt-file", kOther, "FILE", "more prompts, one in each line", &o.prompt_file),
      kText("num-samples", kOther, "N", "of each prompt", &o.num_samples, {1, 1000}),
      kText("max-tokens", kOther, "N", "length of each, after the prompt", &o.sampling.max_tokens,
            {1, kMostRows}),
      kText("temperature", kOther, "X", "0: always the most likely token", &o.sampling.temperature,
            {0, 100}),
      kText("top-k", kOther, "N", "draw from the N most likely tokens; 0: all", &o.sampling.top_k,
            {0, kMostVocab}),
      kText("top-p", kOther, "P", "then from the fewest that reach probability P; 1: all",
            &o.sampling.top_p, {0, 1}),
      kText("min-p", kOther, "P", "then from those of P times the largest probability; 0: all",
            &o.sampling.min_p, {0, 1}),
      kText("stop", kOther, "TEXT", "ends a sample, before it; again for more", &o.sampling.stops),
      kText("seed", kOther, "N", "of the draws; sample I of a prompt has N + I - 1",
            &o.sampling.seed),
      kText("logits", kOther, "N", "no samples: the N largest logits of the next token, as JSON",
            &o.logits, {0, kMostVocab}),
      backend_row(o.backend, kOther),
      dtype_row(o.dtype),
  };
}

std::vector<OptionRow> option_table(PlanOptions& o) {
  PredictionOptions& p = o.prediction;
  const OptionGroup updates{"Predicted time of updates"}, elsewhere{"Other machines"},
      step{"Predicted time of a step on a GPU"};
  std::vector<OptionRow> own = {
      updates("link-gbps", kOther, "GB/s", "that a device sends in a collective; 400 Gbit/s are 50",
              &p.link_gbps, {1e-6, 1e6}),
      updates("boxes", kOther, "N", "of --devices GPUs each; with --inter-gbps", &p.boxes,
              {1, 1024}),
      updates("inter-gbps", kOther, "GB/s", "that a box sends to others, all its devices together",
              &p.inter_gbps, {1e-6, 1e6}),
      updates("link-us", kOther, "US", "of a collective, whatever its size", &p.link_us, {0, 1e6}),
      updates("gemm-tflops", kOther, "TFLOP/s", "of a device in Newton-Schulz", &p.gemm_tflops,
              {1e-6, 1e6}),
      updates("memory-gbps", kOther, "GB/s",
              "of a device's memory, for the commit; else it takes none", &p.memory_gbps,
              {1e-6, 1e6}),
      updates("step-ms", kOther, "MS", "of a step without update, which hides what it can",
              &p.step_ms, {0, 1e9}),
      elsewhere("gpu", kOther, "GPU", "to plan for, here or not:", &o.gpu),
      elsewhere("memory", kOther, "SIZE", "of each GPU, or --largest's device: 80GB; auto: --gpu's",
                &o.memory, {1 << 20}),
      step("roofline", kOther, "GPU", "as for --gpu, or a file of rates", &o.roofline),
      step("measured", kOther, "FILE", "kernels.jsonl of a GPU check, instead of rates",
           &o.measured),
  };
  std::vector<OptionRow> table = option_table(o.train);
  std::ranges::move(own, std::back_inserter(table));
  return table;
}

std::vector<OptionRow> option_table(SweepOptions& o) {
  const OptionGroup row{kSweepGroup};
  std::vector<OptionRow> table = {
      row("trials", kHost, "N", "number of random trials; auto: the whole grid", &o.trials,
          {1, 1e4})
          .explained("\n options of a run vary by several values: 0.1,0.2, or A..B, log:A..B"
                     "\n (/N behind: N values of it), as in the examples below"),
      row("search-seed", kHost, "N", "of random trials", &o.search_seed),
      row("halving", kHost, "FACTOR", "the best one in FACTOR goes on; 1: all train to the end",
          &o.halving.factor, {1, 1000}),
      row("min-steps", kHost, "STEPS", "before the first halving; auto: beyond the warm-up",
          &o.halving.min_steps, {1, kMostSteps}),
      row("asynchronous", kHost, "on|off", "halve without waiting for all trials of a rung (ASHA)",
          &o.halving.asynchronous),
      row("devices-per-trial", kHost, "N", "each trial on N of --devices", &o.devices_per_trial,
          {1, 256}),
      row("trials-per-device", kHost, "N", "side by side on each GPU", &o.trials_per_device,
          {1, 16}),
      row("ask-tell", kHost, "on|off", "an outside optimizer gives trials: JSON lines in and out",
          &o.ask_tell),
  };
  for (OptionRow& each : option_table(o.train)) {
    if (each.name == "profile-steps" || each.name == "graph-dot") continue;  // of one run
    if (each.name == "out") each.help = "the sweep's; without it sweeps/<date>-<time>-<pid>";
    if (each.name == "resume") each.help = "go on with a sweep; auto: the one in --out, if any";
    if (each.name == "devices")
      each.help = "for all trials; auto: all GPUs, or the cores, at most 4";
    table.push_back(each);
  }
  return table;
}

std::vector<OptionRow> option_table(InspectOptions& o) {
  return {checkpoint_row(o.checkpoint, kFiles)};
}

std::vector<OptionRow> option_table(VerifyOptions& o) {
  return {checkpoint_row(o.checkpoint, kFiles, "a checkpoint, or a run directory (all of it)")};
}

std::vector<OptionRow> option_table(ReportOptions& o) {
  OptionRow runs = kFiles("runs", kOther, "RUN...", "run directories", &o.runs).needed();
  runs.positional = true;
  OptionRow out = kFiles("out", kOther, "FILE", "the page to write", &o.out);
  out.letter = "-o";
  return {
      std::move(runs),
      std::move(out),
      kFiles("plotly", kOther, "FILE", "plotly.js, minified; auto: as scripts/setup.sh fetched it",
             &o.plotly),
      OptionGroup{"Live"}("port", kOther, "N", "of --follow; 0: any that is free", &o.port,
                          {0, 65535}),
  };
}

std::vector<OptionRow> option_table(ImportOptions& o) {
  return {
      kFiles("model", kOther, "FILE",
             "model_000123.safetensors, as scripts/convert_nanochat.py makes it", &o.model)
          .needed(),
      kFiles("meta", kOther, "FILE", "auto: meta_000123.json beside the model", &o.meta),
      kFiles("out", kOther, "DIR", "run directory that gets the checkpoint", &o.out).needed(),
  };
}

std::vector<OptionRow> option_table(ExportOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kFiles),
      kFiles("out", kOther, "DIR", "for nanochat: model_000123.safetensors and meta_000123.json",
             &o.out),
      kFiles("hf", kOther, "DIR", "for Hugging Face: model.safetensors, config.json; plain models",
             &o.hf),
      kFiles("hf-code", kOther, "DIR",
             "for Hugging Face, with Python code of the model; all models", &o.hf_code),
  };
}

std::vector<OptionRow> option_table(TokenizeOptions& o) {
  OptionRow data = kFiles("data", kOther, "PATH...",
                          "text, JSON Lines, also .gz, .zst; folders; -: stdin", &o.data)
                       .needed();
  data.positional = true;
  std::vector<OptionRow> rows = {
      std::move(data),
      kFiles("out", kOther, "DIR", "gets the shards; an interrupted run goes on there", &o.out)
          .needed(),
      tokenizer_row(o.tokenizer, kText),
      kText("shard-tokens", kOther, "N", "of each shard but the last", &o.shard_tokens,
            {2, 2'147'483'647}),
      kText("val-tokens", kOther, "N", "held out, at most, in a shard of their own; 0: none",
            &o.val_tokens, {0, 2'147'483'647}),
      kText("val-every", kOther, "N", "held out is one document in N, until --val-tokens",
            &o.val_every, {2, kMostSteps}),
      kText("threads", kOther, "N", "auto: the cores", &o.threads, {1, 1024}),
  };
  std::ranges::move(text_rows(o.text), std::back_inserter(rows));
  return rows;
}

std::vector<OptionRow> option_table(TrainTokenizerOptions& o) {
  std::vector<OptionRow> rows = {
      kData("data", kOther, "PATH...", "text, JSON Lines, also .gz, .zst; folders", &o.data)
          .needed(),
      kData("max-bytes", kOther, "SIZE", "of text to learn from; auto: all of it", &o.max_bytes),
      kText("vocab-size", kOther, "N", "tokens, bytes and special ones among them", &o.vocab_size,
            {1, kMostVocab}),
      kText("pattern", kOther, "NAME|REGEX", "cuts text: nanochat, gpt2, gpt4, gpt4o, or your own",
            &o.pattern),
      kText("special", kOther, "TOKENS", "separated by spaces, the last ids; nanochat: its nine",
            &o.special),
      kText("threads", kOther, "N", "auto: the cores", &o.threads, {1, 1024}),
      kFiles("out", kOther, "FILE", "the tokenizer.json to write", &o.out).needed(),
  };
  std::ranges::move(text_rows(o.text), std::back_inserter(rows));
  return rows;
}

std::vector<OptionRow> option_table(EncodeOptions& o) {
  OptionRow files = kFiles("files", kOther, "FILE...", "auto: standard input", &o.files);
  files.positional = true;
  return {
      std::move(files),
      tokenizer_row(o.tokenizer, kText),
      kText("field", kOther, "NAME", "of *.jsonl, which standard input is then: the text's",
            &o.field),
      kText("special", kOther, "on|off", "texts of special tokens become these tokens", &o.special),
  };
}

std::vector<OptionRow> option_table(DecodeOptions& o) {
  OptionRow files = kFiles("files", kOther, "FILE...", "auto: standard input", &o.files);
  files.positional = true;
  return {std::move(files), tokenizer_row(o.tokenizer, kText)};
}

std::vector<OptionRow> option_table(ConvertTokenizerOptions& o) {
  OptionRow from = tokenizer_row(o.tokenizer, kFiles);
  from.positional = true;
  return {
      std::move(from),
      kText("pattern", kOther, "NAME|REGEX", "of ranks: gpt2, gpt4, gpt4o, nanochat, or your own",
            &o.pattern),
      kText("special", kOther, "TOKEN=ID...", "of ranks; separated by spaces", &o.special),
      kFiles("out", kOther, "FILE", "the tokenizer.json to write", &o.out).needed(),
  };
}

}  // namespace muo::app
