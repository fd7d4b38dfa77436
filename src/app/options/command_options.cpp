#include <string_view>

#include "app/options/option_groups.h"
#include "app/options/option_table.h"

namespace muo {
namespace {

using enum OptionClass;

constexpr std::string_view kText = "Text";
constexpr std::string_view kFiles = "Files";

OptionRow backend_row(std::string& backend, OptionClass kind) {
  return {.name = "backend",
          .group = kDevicesGroup,
          .kind = kind,
          .value = "NAME",
          .help = "host: devices on the CPU; cuda: GPUs; auto: GPUs if any",
          .field = &backend,
          .choices = {"auto", "host", "cuda"}};
}

OptionRow dtype_row(std::optional<DType>& dtype) {
  return {"dtype", kDevicesGroup, kOther, "fp32|bf16", "to compute in; auto: the run's", &dtype};
}

OptionRow checkpoint_row(std::string& checkpoint, std::string_view group,
                         std::string_view help = "a checkpoint, or a run directory (its newest)") {
  return {.name = "checkpoint",
          .group = group,
          .kind = kOther,
          .value = "DIR",
          .help = help,
          .field = &checkpoint,
          .required = true,
          .positional = true};
}

OptionRow file_row(std::string_view name, std::string_view value, std::string_view help,
                   std::string& field) {
  return {.name = name,
          .group = kFiles,
          .kind = kOther,
          .value = value,
          .help = help,
          .field = &field,
          .required = true};
}

}  // namespace

std::vector<OptionRow> device_rows(DeviceOptions& o, OptionClass kind) {
  return {
      backend_row(o.backend, kind),
      {.name = "devices",
       .group = kDevicesGroup,
       .kind = kind,
       .value = "N",
       .help = "auto: all GPUs, or the cores, at most 4",
       .field = &o.count,
       .low = 1,
       .high = 256,
       .replaces = {"device-batch-size"}},
      {.name = "ranks-per-device",
       .group = kDevicesGroup,
       .kind = kind,
       .value = "N",
       .help = "virtual ranks on each GPU",
       .field = &o.ranks_per_device,
       .low = 1,
       .high = 8,
       .replaces = {"device-batch-size"}},
      {.name = "comm",
       .group = kDevicesGroup,
       .kind = kind,
       .value = "NAME",
       .help = "between GPUs; auto: nccl, or peer where ranks share one",
       .field = &o.comm,
       .choices = {"auto", "host", "peer", "nccl"}},
  };
}

std::vector<OptionRow> option_table(EvalOptions& o) {
  std::vector<OptionRow> table = {
      checkpoint_row(o.checkpoint, kRunGroup),
      {"data", kDataGroup, kOther, "PATH...", "without it, the held-out data of the run",
       &o.data.paths},
      {"data-max-bytes", kDataGroup, kOther, "BYTES",
       "use whole text files until this many bytes; 0: all", &o.data.max_bytes, 0, kMostTokens},
      {"eval-tokens", kDataGroup, kOther, "TOKENS", "auto: all of it", &o.tokens, 1, kMostTokens},
  };
  for (OptionRow& row : device_rows(o.devices, kOther))
    table.push_back(std::move(row));
  table.push_back({"device-batch-size", kDevicesGroup, kOther, "ROWS",
                   "per device at a time; auto: 4,096 tokens, GPUs 65,536", &o.device_rows, 1,
                   kMostRows});
  table.push_back(dtype_row(o.dtype));
  return table;
}

std::vector<OptionRow> option_table(SampleOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kRunGroup),
      {.name = "prompt",
       .group = kText,
       .kind = kOther,
       .value = "TEXT",
       .help = "what the samples continue; without it they start a document",
       .field = &o.prompt},
      {"num-samples", kText, kOther, "N", "how many", &o.num_samples, 1, 1000},
      {"max-tokens", kText, kOther, "N", "length of each, after the prompt", &o.max_tokens, 1,
       kMostRows},
      {"temperature", kText, kOther, "X", "0: always the most likely token", &o.temperature, 0,
       100},
      {"top-k", kText, kOther, "N", "draw from the N most likely tokens; 0: all", &o.top_k, 0,
       kMostVocab},
      {"seed", kText, kOther, "N", "of the draws", &o.seed},
      backend_row(o.backend, kOther),
      dtype_row(o.dtype),
  };
}

std::vector<OptionRow> option_table(PredictionOptions& o) {
  constexpr std::string_view kPrediction = "Predicted time of updates";
  return {
      {"link-gbps", kPrediction, kOther, "GB/s", "that a device sends in a collective",
       &o.link_gbps, 1e-6, 1e6},
      {"link-us", kPrediction, kOther, "US", "of a collective, whatever its size", &o.link_us, 0,
       1e6},
      {"gemm-tflops", kPrediction, kOther, "TFLOP/s", "of a device in Newton-Schulz",
       &o.gemm_tflops, 1e-6, 1e6},
      {"step-ms", kPrediction, kOther, "MS", "of a step without update, which hides what it can",
       &o.step_ms, 0, 1e9},
  };
}

std::vector<OptionRow> option_table(InspectOptions& o) {
  return {checkpoint_row(o.checkpoint, kFiles)};
}

std::vector<OptionRow> option_table(VerifyOptions& o) {
  return {checkpoint_row(o.checkpoint, kFiles, "a checkpoint, or a run directory (all of it)")};
}

std::vector<OptionRow> option_table(ImportOptions& o) {
  OptionRow meta = file_row("meta", "FILE", "auto: meta_000123.json beside the model", o.meta);
  meta.required = false;
  return {
      file_row("model", "FILE", "model_000123.safetensors, as scripts/convert_nanochat.py makes it",
               o.model),
      meta,
      file_row("out", "DIR", "run directory that gets the checkpoint", o.out),
  };
}

std::vector<OptionRow> option_table(ExportOptions& o) {
  return {
      checkpoint_row(o.checkpoint, kFiles),
      file_row("out", "DIR", "where model_000123.safetensors and meta_000123.json go", o.out),
  };
}

}  // namespace muo
