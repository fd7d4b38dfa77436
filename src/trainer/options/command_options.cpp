#include <algorithm>
#include <iterator>
#include <utility>

#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

using enum OptionClass;

constexpr OptionGroup kData{kDataGroup};
constexpr OptionGroup kDevices{kDevicesGroup};
constexpr OptionGroup kRun{kRunGroup};
constexpr OptionGroup kText{"Text"};
constexpr OptionGroup kFiles{"Files"};

OptionRow backend_row(std::optional<Backend>& backend, OptionClass kind) {
  return kDevices("backend", kind, "NAME", "host: the CPU; cuda: GPUs; auto: GPUs if there are any",
                  &backend);
}

OptionRow dtype_row(std::optional<DType>& dtype) {
  return kDevices("dtype", kOther, "fp32|bf16", "compute type; auto: the run's", &dtype);
}

OptionRow tokenizer_row(std::string& tokenizer, const OptionGroup& group) {
  return group("tokenizer", kOther, "FILE", "byte, tokenizer.json, SentencePiece or tiktoken file",
               &tokenizer)
      .needed();
}

std::vector<OptionRow> text_rows(TextOptions& o) {
  return {
      kData("field", kOther, "NAME", "field of JSON Lines that holds the text", &o.field),
      kData("document-separator", kOther, "TEXT", "text that separates documents within a file",
            &o.separator),
      kData("skip-bad-lines", kOther, "on|off",
            "skip and count JSON lines without text instead of failing", &o.skip_bad_lines),
  };
}

OptionRow checkpoint_row(
    std::string& checkpoint, const OptionGroup& group,
    std::string_view help = "checkpoint, or run directory (its newest checkpoint)") {
  OptionRow row = group("checkpoint", kOther, "DIR", help, &checkpoint).needed();
  row.positional = true;
  return row;
}

}  // namespace

std::vector<OptionRow> device_rows(DeviceOptions& o, OptionClass kind) {
  return {
      backend_row(o.backend, kind),
      kDevices("devices", kind, "N", "devices; auto: all GPUs, or one per core, at most 4",
               &o.count, {1, 256})
          .replacing({"device-batch-size"})
          .training(),
      kDevices("ranks-per-device", kind, "N", "virtual ranks on each GPU", &o.ranks_per_device,
               {1, 8})
          .replacing({"device-batch-size"}),
      kDevices("comm", kind, "NAME", "GPU collectives; auto: nccl, or peer if ranks share a GPU",
               &o.comm),
  };
}

std::vector<OptionRow> option_table(EvalOptions& o) {
  std::vector<OptionRow> table = {
      checkpoint_row(o.checkpoint, kRun),
      kData("data", kOther, "PATH...", "data to evaluate; default: the validation data of the run",
            &o.data.paths),
      kData("data-max-bytes", kOther, "BYTES", "max bytes of text, in whole files; 0: no limit",
            &o.data.max_bytes, {0, kMaxTokens}),
      kData("eval-tokens", kOther, "TOKENS", "tokens to evaluate; auto: all", &o.tokens,
            {1, kMaxTokens}),
      kData("packing", kOther, "NAME", "how rows are cut: as-trained, or as train --packing",
            NamedField(&o.packing, "as-trained")),
  };
  const OptionGroup examples{kExamplesGroup};
  std::ranges::move(
      std::vector<OptionRow>{
          examples("hellaswag", kOther, "FILE",
                   "HellaSwag's .jsonl, or the .bin that llm.c makes from it",
                   &o.examples.hellaswag),
          examples("core", kOther, "DIR", "nanochat's bundle of the CORE metric's tasks",
                   &o.examples.core),
          examples("max-per-task", kOther, "N", "examples per task; 0: all",
                   &o.examples.max_per_task, {0, kMaxTokens}),
          examples("row-tokens", kOther, "TOKENS",
                   "max row length (cuts the prompt start); auto: as trained",
                   &o.examples.row_tokens, {2, kMaxRows}),
      },
      std::back_inserter(table));
  std::ranges::move(device_rows(o.devices, kOther), std::back_inserter(table));
  table.push_back(kDevices("device-batch-size", kOther, "ROWS",
                           "rows per device; auto: 4,096 tokens, or 65,536 on GPUs", &o.device_rows,
                           {1, kMaxRows}));
  table.push_back(dtype_row(o.dtype));
  return table;
}

std::vector<OptionRow> option_table(SampleOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kRun),
      kText("prompt", kOther, "TEXT", "text to continue; may be repeated; default: a new document",
            &o.prompts),
      kText("prompt-file", kOther, "FILE", "file of prompts, one per line", &o.prompt_file),
      kText("num-samples", kOther, "N", "samples per prompt", &o.num_samples, {1, 1000}),
      kText("max-tokens", kOther, "N", "tokens per sample, after the prompt",
            &o.sampling.max_tokens, {1, kMaxRows}),
      kText("temperature", kOther, "X", "sampling temperature; 0: the most likely token",
            &o.sampling.temperature, {0, 100}),
      kText("top-k", kOther, "N", "sample from the N most likely tokens; 0: all", &o.sampling.top_k,
            {0, kMaxVocab}),
      kText("top-p", kOther, "P", "sample from the fewest tokens of total probability P; 1: all",
            &o.sampling.top_p, {0, 1}),
      kText("min-p", kOther, "P", "sample from tokens of at least P times the top probability",
            &o.sampling.min_p, {0, 1}),
      kText("stop", kOther, "TEXT", "text that ends a sample; may be repeated", &o.sampling.stops),
      kText("seed", kOther, "N", "random seed; sample I of a prompt has seed N + I - 1",
            &o.sampling.seed),
      kText("logits", kOther, "N", "print the next token's N largest logits as JSON, no samples",
            &o.logits, {0, kMaxVocab}),
      kText("timeline", kOther, "FILE", "write a timeline of the first sample's tokens",
            &o.timeline),
      backend_row(o.backend, kOther),
      dtype_row(o.dtype),
  };
}

std::vector<OptionRow> option_table(PlanOptions& o) {
  PredictionOptions& p = o.prediction;
  const OptionGroup updates{"Predicted time of updates"}, elsewhere{"Other machines"},
      step{"Predicted time of a step on a GPU"};
  std::vector<OptionRow> own = {
      updates("link-gbps", kOther, "GB/s", "bandwidth of a device in collectives (400 Gbit/s: 50)",
              &p.link_gbps, {1e-6, 1e6}),
      updates("boxes", kOther, "N", "boxes (nodes) of --devices GPUs each; needs --inter-gbps",
              &p.boxes, {1, 1024}),
      updates("inter-gbps", kOther, "GB/s", "bandwidth of a box to the others", &p.inter_gbps,
              {1e-6, 1e6}),
      updates("link-us", kOther, "US", "latency of a collective", &p.link_us, {0, 1e6}),
      updates("gemm-tflops", kOther, "TFLOP/s", "rate of a device in Newton-Schulz", &p.gemm_tflops,
              {1e-6, 1e6}),
      updates("memory-gbps", kOther, "GB/s", "memory bandwidth of a device, for committing updates",
              &p.memory_gbps, {1e-6, 1e6}),
      updates("step-ms", kOther, "MS", "time of forward and backward, which can hide communication",
              &p.step_ms, {0, 1e9}),
      elsewhere("gpu", kOther, "GPU", "GPU to plan for (need not be in this machine):", &o.gpu),
      elsewhere("memory", kOther, "SIZE", "memory per device, e.g. 80GB; auto: that of --gpu",
                &o.memory, {1 << 20}),
      step("roofline", kOther, "GPU", "GPU as for --gpu, or a file of its rates", &o.roofline),
      step("measured", kOther, "FILE",
           "kernels.jsonl of a GPU check; its times replace predictions", &o.measured),
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
          .explained("\n to vary an option, give it several values (0.1,0.2) or a range:"
                     "\n A..B, log:A..B, or A..B/N for N values of it; see the examples"),
      row("search-seed", kHost, "N", "seed for drawing trials", &o.search_seed),
      row("halving", kHost, "FACTOR", "successive halving: the best 1 in FACTOR continues; 1: off",
          &o.halving.factor, {1, 1000}),
      row("min-steps", kHost, "STEPS", "steps before the first halving; auto: beyond the warm-up",
          &o.halving.min_steps, {1, kMaxSteps}),
      row("asynchronous", kHost, "on|off",
          "promote without waiting for all trials of a rung (ASHA)", &o.halving.asynchronous),
      row("sweep-budget", kHost, "TIME", "training time of the sweep, e.g. 1h; sets --time-budget",
          &o.budget),
      row("finalists", kHost, "N", "test the N best points with fresh seeds; 1: no finals",
          &o.finalists, {1, 16}),
      row("confidence", kHost, "X", "confidence of all judgements of the finals; of intervals",
          &o.confidence, {0.5, 0.999999}),
      row("transfer-to", kHost, "DEPTH", "predict the searched option's best value at this depth",
          &o.transfer_to, {1, 1000}),
      row("devices-per-trial", kHost, "N", "devices per trial", &o.devices_per_trial, {1, 256}),
      row("trials-per-device", kHost, "N", "concurrent trials per GPU", &o.trials_per_device,
          {1, 16}),
      row("ask-tell", kHost, "on|off", "an external optimizer suggests trials over stdio",
          &o.ask_tell),
  };
  for (OptionRow& each : option_table(o.train)) {
    if (each.name == "profile-steps" || each.name == "timeline" || each.name == "graph-dot" ||
        each.name == "result")
      continue;  // for a single run
    if (each.name == "out") each.help = "sweep directory; default: sweeps/<date>-<time>-<pid>";
    if (each.name == "resume") each.help = "resume a sweep; auto: the sweep in --out, if any";
    if (each.name == "devices")
      each.help = "total devices; auto: all GPUs, or one per core, at most 4";
    table.push_back(each);
  }
  return table;
}

std::vector<OptionRow> option_table(InspectOptions& o) {
  return {checkpoint_row(o.checkpoint, kFiles)};
}

std::vector<OptionRow> option_table(VerifyOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kFiles, "checkpoint, or run directory (all its checkpoints)")};
}

std::vector<OptionRow> option_table(ReportOptions& o) {
  OptionRow runs = kFiles("runs", kOther, "RUN...", "run directories", &o.runs).needed();
  runs.positional = true;
  OptionRow out = kFiles("out", kOther, "FILE", "HTML page to write", &o.out);
  out.letter = "-o";
  return {
      std::move(runs),
      std::move(out),
      kFiles("plotly", kOther, "FILE",
             "minified plotly.js; auto: the file fetched by scripts/setup.sh", &o.plotly),
      OptionGroup{"Live"}("port", kOther, "N", "port of --follow; 0: any free port", &o.port,
                          {0, 65535}),
  };
}

std::vector<OptionRow> option_table(CompareOptions& o) {
  OptionRow runs = kFiles("runs", kOther, "RUN...", "run directories and sweeps", &o.runs).needed();
  runs.positional = true;
  return {
      std::move(runs),
      kFiles("with", kOther, "RUN...", "runs to compare with; default: by their options", &o.with),
      OptionGroup{"Test"}("confidence", kOther, "X", "confidence of all judgements together",
                          &o.confidence, {0.5, 0.999999}),
  };
}

std::vector<OptionRow> option_table(TimelineOptions& o) {
  OptionRow file = kFiles("file", kOther, "FILE", "file of --timeline", &o.file).needed();
  file.positional = true;
  return {std::move(file)};
}

std::vector<OptionRow> option_table(ImportOptions& o) {
  return {
      kFiles("model", kOther, "FILE", "model_*.safetensors from scripts/convert_nanochat.py",
             &o.model)
          .needed(),
      kFiles("meta", kOther, "FILE", "meta file of the model; auto: meta_*.json beside it",
             &o.meta),
      kFiles("out", kOther, "DIR", "run directory to write the checkpoint to", &o.out).needed(),
  };
}

std::vector<OptionRow> option_table(ExportOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kFiles),
      kFiles("out", kOther, "DIR",
             "output for nanochat: model_000123.safetensors, meta_000123.json", &o.out),
      kFiles("hf", kOther, "DIR", "output for Hugging Face (weights, config.json), plain models",
             &o.hf),
      kFiles("hf-code", kOther, "DIR", "output for Hugging Face with the model's code, all models",
             &o.hf_code),
  };
}

std::vector<OptionRow> option_table(TokenizeOptions& o) {
  OptionRow data = kFiles("data", kOther, "PATH...",
                          "text or JSON Lines files (.gz, .zst), folders, or -", &o.data)
                       .needed();
  data.positional = true;
  std::vector<OptionRow> rows = {
      std::move(data),
      kFiles("out", kOther, "DIR", "directory to write shards to, or to continue", &o.out).needed(),
      tokenizer_row(o.tokenizer, kText),
      kText("shard-tokens", kOther, "N", "tokens per shard", &o.shard_tokens, {2, 2'147'483'647}),
      kText("val-tokens", kOther, "N", "max validation tokens, in their own shard; 0: none",
            &o.val_tokens, {0, 2'147'483'647}),
      kText("val-every", kOther, "N", "hold out 1 document in N, up to --val-tokens", &o.val_every,
            {2, kMaxSteps}),
      kText("threads", kOther, "N", "threads; auto: one per core", &o.threads, {1, 1024}),
  };
  std::ranges::move(text_rows(o.text), std::back_inserter(rows));
  return rows;
}

std::vector<OptionRow> option_table(TrainTokenizerOptions& o) {
  std::vector<OptionRow> rows = {
      kData("data", kOther, "PATH...", "text or JSON Lines files (.gz, .zst), folders", &o.data)
          .needed(),
      kData("max-bytes", kOther, "SIZE", "bytes of text to learn from; auto: all", &o.max_bytes),
      kText("vocab-size", kOther, "N", "vocabulary size, bytes and special tokens included",
            &o.vocab_size, {1, kMaxVocab}),
      kText("pattern", kOther, "NAME|REGEX", "split pattern: gpt2, gpt4, gpt4o, llama3 or a regex",
            &o.pattern),
      kText("special", kOther, "TOKENS", "special tokens, space-separated; nanochat: its nine",
            &o.special),
      kText("threads", kOther, "N", "threads; auto: one per core", &o.threads, {1, 1024}),
      kFiles("out", kOther, "FILE", "tokenizer.json to write", &o.out).needed(),
  };
  std::ranges::move(text_rows(o.text), std::back_inserter(rows));
  return rows;
}

std::vector<OptionRow> option_table(EncodeOptions& o) {
  OptionRow files =
      kFiles("files", kOther, "FILE...", "files to read; default: standard input", &o.files);
  files.positional = true;
  return {
      std::move(files),
      tokenizer_row(o.tokenizer, kText),
      kText("field", kOther, "NAME", "text field of JSON Lines; if given, stdin is JSON Lines",
            &o.field),
      kText("special", kOther, "on|off", "encode the text of a special token as that token",
            &o.special),
  };
}

std::vector<OptionRow> option_table(DecodeOptions& o) {
  OptionRow files =
      kFiles("files", kOther, "FILE...", "files to read; default: standard input", &o.files);
  files.positional = true;
  return {std::move(files), tokenizer_row(o.tokenizer, kText)};
}

std::vector<OptionRow> option_table(ConvertTokenizerOptions& o) {
  OptionRow from = tokenizer_row(o.tokenizer, kFiles);
  from.positional = true;
  return {
      std::move(from),
      kText("pattern", kOther, "NAME|REGEX",
            "split pattern: nanochat, gpt2, gpt4, gpt4o, llama3 or regex", &o.pattern),
      kText("special", kOther, "TOKEN=ID...", "special tokens of a tiktoken file, space-separated",
            &o.special),
      kFiles("out", kOther, "FILE", "tokenizer.json to write", &o.out).needed(),
  };
}

}  // namespace muo::trainer
