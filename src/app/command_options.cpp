#include <fmt/format.h>

#include <string_view>

#include "app/optimizer_options.h"
#include "app/option_table.h"
#include "kernels/attention_method.h"
#include "optim/sharding_plan.h"

namespace muo {
namespace {

// Bounds that keep every product of sizes in 64 bits; what a machine can hold is far below.
constexpr double kMostRows = 1 << 20;
constexpr double kMostTokens = 1LL << 40;
constexpr double kMostLayers = 1024;
constexpr double kMostWidth = 1 << 16;
constexpr double kMostDevices = 256;
constexpr double kMostVocab = 1 << 24;

constexpr std::string_view kData = "Data";
constexpr std::string_view kModel = "Model";
constexpr std::string_view kBatch = kBatchGroup;
constexpr std::string_view kDevices = "Devices";
constexpr std::string_view kNumbers = "Number formats";
constexpr std::string_view kRun = "Run directory, evaluation, checkpoints";

std::vector<OptionRow> data_rows(TrainOptions& o) {
  return {
      {"data", kData, "PATH...", "text files, folders of text, or .bin token shards", &o.data},
      {"val-data", kData, "PATH...", "held-out data; without it a tenth of --data is held out",
       &o.val_data},
      {"data-max-bytes", kData, "BYTES", "use whole text files until this many bytes; 0: all",
       &o.data_max_bytes, 0, kMostTokens},
      {.name = "tokenizer",
       .group = kData,
       .value = "NAME",
       .help = "of text; byte: 256 bytes and a start-of-document token",
       .field = &o.tokenizer,
       .choices = {"byte"}},
      {"vocab-size", kData, "N", "of .bin shards: ids are below; 0: the byte tokenizer's",
       &o.vocab_size, 0, kMostVocab},
  };
}

std::vector<OptionRow> model_rows(TrainOptions& o) {
  return {
      {.name = "depth",
       .group = kModel,
       .value = "N",
       .help = "layers; width is 64 per layer rounded up to heads of 128",
       .field = &o.depth,
       .low = 1,
       .high = kMostLayers,
       .replaces = {"n-layer", "n-embd", "n-head", "n-kv-head"}},
      {"n-layer", kModel, "N", "layers, instead of --depth", &o.n_layer, 1, kMostLayers},
      {.name = "n-embd",
       .group = kModel,
       .value = "N",
       .help = "width, instead of --depth's",
       .field = &o.n_embd,
       .low = 1,
       .high = kMostWidth,
       .replaces = {"n-head", "n-kv-head"}},
      {.name = "n-head",
       .group = kModel,
       .value = "N",
       .help = "query heads; must divide the width into even head sizes",
       .field = &o.n_head,
       .low = 1,
       .high = kMostWidth,
       .replaces = {"n-kv-head"}},
      {"n-kv-head", kModel, "N", "key and value heads; must divide the query heads", &o.n_kv_head,
       1, kMostWidth},
      {.name = "max-seq-len",
       .group = kModel,
       .value = "TOKENS",
       .help = "length of a row, T; plain 256, nanochat 2048",
       .field = &o.max_seq_len,
       .low = 2,
       .high = kMostRows,
       .replaces = {"device-batch-size"}},
      {"softcap", kModel, "X", "logits are X tanh(logits / X); 0: off", &o.softcap, 0, 1e6},
      {.name = "model",
       .group = kModel,
       .value = "NAME",
       .help = "nanochat: all extras below; plain: none",
       .field = &o.model,
       .choices = {"plain", "nanochat"},
       .replaces = {"value-embeddings", "smear", "backout", "resid-lambdas", "x0-lambdas",
                    "qk-scale", "window-pattern"}},
      {"value-embeddings", kModel, "on|off",
       "gated token tables added to every other layer's values", &o.value_embeddings},
      {"smear", kModel, "on|off", "mix a part of the previous token's embedding in", &o.smear},
      {"backout", kModel, "on|off", "subtract a part of the middle layer's output at the end",
       &o.backout},
      {"resid-lambdas", kModel, "on|off", "learned weight of the residual stream at each layer",
       &o.resid_lambdas},
      {"x0-lambdas", kModel, "on|off", "learned weight of the embedding added at each layer",
       &o.x0_lambdas},
      {"qk-scale", kModel, "X", "of normed queries and keys; plain 1, nanochat 1.2", &o.qk_scale,
       1e-3, 1e3},
      {"window-pattern", kModel, "LETTERS", "layers: L sees T, S a quarter; plain L, nanochat SSSL",
       &o.window_pattern},
  };
}

std::vector<OptionRow> batch_rows(TrainOptions& o) {
  return {
      {"device-batch-size", kBatch, "ROWS",
       "rows per device and micro-step; auto: the most that fit", &o.device_batch_size, 1,
       kMostRows},
      {"total-batch-size", kBatch, "TOKENS", "per step: rows x T x devices x N; auto: the target",
       &o.total_batch_size, 1, kMostTokens},
      {.name = "target-batch-size",
       .group = kBatch,
       .value = "TOKENS",
       .help = "per step, or nearest that devices divide; auto: by depth",
       .field = &o.target_batch_size,
       .low = 1,
       .high = kMostTokens,
       .replaces = {"total-batch-size", "device-batch-size"}},
      {.name = "num-iterations",
       .group = kBatch,
       .value = "STEPS",
       .help = "steps to train; goes before --target-flops",
       .field = &o.num_iterations,
       .low = 1,
       .high = kMostSteps,
       .replaces = {"target-flops"}},
      {.name = "target-flops",
       .group = kBatch,
       .value = "FLOPS",
       .help = "steps by compute; goes before the ratio",
       .field = &o.target_flops,
       .low = 1,
       .high = 1e30,
       .replaces = {"num-iterations"}},
      {.name = "target-param-data-ratio",
       .group = kBatch,
       .value = "RATIO",
       .help = "tokens to train on, per weight of matrices and head",
       .field = &o.target_param_data_ratio,
       .low = 1e-9,
       .high = 1e9,
       .replaces = {"num-iterations", "target-flops"}},
  };
}

OptionRow backend_row(std::string& backend) {
  return {.name = "backend",
          .group = kDevices,
          .value = "NAME",
          .help = "host: devices on the CPU; cuda: GPUs; auto: GPUs if any",
          .field = &backend,
          .choices = {"auto", "host", "cuda"}};
}

std::vector<OptionRow> where_rows(DeviceOptions& o) {
  return {
      backend_row(o.backend),
      {.name = "devices",
       .group = kDevices,
       .value = "N",
       .help = "auto: all GPUs, or the cores, at most 4",
       .field = &o.devices,
       .low = 1,
       .high = kMostDevices,
       .replaces = {"device-batch-size"}},
      {.name = "ranks-per-device",
       .group = kDevices,
       .value = "N",
       .help = "virtual ranks on each GPU",
       .field = &o.ranks_per_device,
       .low = 1,
       .high = 8,
       .replaces = {"device-batch-size"}},
      {.name = "comm",
       .group = kDevices,
       .value = "NAME",
       .help = "between GPUs; auto: nccl, or peer where ranks share one",
       .field = &o.comm,
       .choices = {"auto", "host", "peer", "nccl"}},
  };
}

std::vector<OptionRow> device_rows(TrainOptions& o) {
  const auto strategies = strategy_names();
  std::string summaries;
  for (const Strategy& strategy : strategy_list())
    summaries += fmt::format("\n {}: {}", strategy.name, strategy.summary);
  return {
      {.name = "strategy",
       .group = kDevices,
       .value = "NAME",
       .help = "who updates which weights",
       .field = &o.strategy,
       .choices = {strategies.begin(), strategies.end()},
       .choices_help = summaries},
      {.name = "gather",
       .group = kDevices,
       .value = "pipelined|simple",
       .help = "of new weights: beside the next forward, or at once",
       .field = &o.gather,
       .choices = {"pipelined", "simple"}},
      {.name = "replicas",
       .group = kDevices,
       .value = "own|common",
       .help = "of weights: one each, or, on the host, one for all",
       .field = &o.replicas,
       .choices = {"auto", "own", "common"}},
      {.name = "accumulate",
       .group = kDevices,
       .value = "local|sharded",
       .help = "reduce gradients once a step, or in each micro-step",
       .field = &o.accumulate,
       .choices = {"local", "sharded"}},
      {"graph", kDevices, "on|off", "capture the step once, then replay it", &o.graph},
      {.name = "graph-branches",
       .group = kDevices,
       .value = "3|1",
       .help = "computing, collectives and updates side by side, or in one",
       .field = &o.graph_branches,
       .choices = {"3", "1"}},
      {.name = "seed",
       .group = kDevices,
       .value = "N",
       .help = "of initial weights and data order",
       .field = &o.seed},
      {"verify-sync-every", kDevices, "STEPS", "compare the devices' weights; -1: never",
       &o.verify_sync_every, 1, kMostSteps, true},
  };
}

std::vector<OptionRow> number_rows(TrainOptions& o) {
  return {
      {.name = "dtype",
       .group = kNumbers,
       .value = "fp32|bf16",
       .help = "to compute in; auto: fp32 on the host, bf16 on GPUs",
       .field = &o.dtype,
       .replaces = {"weight-wire"}},
      {"gradient-wire", kNumbers, "fp32|bf16", "of gradients on their way to be summed; auto: fp32",
       &o.gradient_wire},
      {"weight-wire", kNumbers, "fp32|bf16", "of updated weights on their way; auto: --dtype",
       &o.weight_wire},
      {"gemm-table", kNumbers, "FILE",
       "algorithms of GPUs' products; missing ones are measured, added", &o.gemm_table},
      {.name = "attention",
       .group = kNumbers,
       .value = "NAME",
       .help = "GPUs' kernels; auto: MUO_ATTENTION, else cuDNN's or own",
       .field = &o.attention,
       .choices = {kAttentionKernels.begin(), kAttentionKernels.end()}},
      {"deterministic", kNumbers, "on|off",
       "off: gradients in any order on GPUs; nothing on the host", &o.deterministic},
      {"embedding-state", kNumbers, "fp32|bf16",
       "of embeddings in the optimizer; nanochat's is bf16", &o.embedding_state},
  };
}

std::vector<OptionRow> run_rows(TrainOptions& o) {
  return {
      {.name = "out",
       .group = kRun,
       .value = "DIR",
       .help = "run directory; without it runs/<date>-<time>-<pid>",
       .field = &o.out,
       .saved = false},
      {.name = "resume",
       .group = kRun,
       .value = "auto|DIR",
       .help = "go on from a run or checkpoint; auto: the newest, if any",
       .field = &o.resume,
       .saved = false},
      {.name = "init-from",
       .group = kRun,
       .value = "DIR",
       .help = "start from the weights of a checkpoint, at step 0",
       .field = &o.init_from,
       .saved = false},
      {"eval-every", kRun, "STEPS", "-1: never", &o.eval_every, 1, kMostSteps, true},
      {"eval-tokens", kRun, "TOKENS", "of held-out data per evaluation", &o.eval_tokens, 1,
       kMostTokens},
      {"save-every", kRun, "STEPS", "checkpoints besides the last; -1: never", &o.save_every, 1,
       kMostSteps, true},
      {"save-minutes", kRun, "X", "a checkpoint at least so often; -1: never", &o.save_minutes,
       0.001, 1e6, true},
      {"save-before-eval", kRun, "SECONDS",
       "a checkpoint before evaluations that take longer; -1: never", &o.save_before_eval, 0, 1e6,
       true},
      {"keep-last", kRun, "N", "remove older checkpoints than the N newest good; -1: none",
       &o.keep_last, 1, kMostSteps, true},
      {"keep-every", kRun, "STEPS", "but not those of steps that this divides", &o.keep_every, 1,
       kMostSteps, true},
      {.name = "save-mode",
       .group = kRun,
       .value = "auto|background|wait",
       .help = "train on while one is written; auto: if memory allows",
       .field = &o.save_mode,
       .choices = {"auto", "background", "wait"}},
      {.name = "on-save-error",
       .group = kRun,
       .value = "stop|continue",
       .help = "continue: log it and try again at the next save",
       .field = &o.on_save_error,
       .choices = {"stop", "continue"}},
      {"sample-every", kRun, "STEPS", "print a sample (text only); -1: never", &o.sample_every, 1,
       kMostSteps, true},
      {"log-every", kRun, "STEPS", "between lines of metrics.jsonl", &o.log_every, 1, kMostSteps},
      {"stuck-after", kRun, "SECONDS", "a run that stands still for so long fails; 0: never",
       &o.stuck_after, 0, 1e6},
      {.name = "profile-steps",
       .group = kRun,
       .value = "A:B",
       .help = "for profilers: steps A to B - 1 in the NVTX range profile",
       .field = &o.profile_steps,
       .saved = false},
      {.name = "graph-dot",
       .group = kRun,
       .value = "FILE",
       .help = "write the captured step of rank 0 for Graphviz",
       .field = &o.graph_dot,
       .saved = false},
  };
}

}  // namespace

std::vector<OptionRow> option_table(TrainOptions& o) {
  std::vector<OptionRow> table;
  for (const auto& rows :
       {data_rows(o), model_rows(o), batch_rows(o), optimizer_rows(o), guard_rows(o), where_rows(o),
        device_rows(o), number_rows(o), run_rows(o)})
    table.insert(table.end(), rows.begin(), rows.end());
  return table;
}

std::vector<OptionRow> option_table(EvalOptions& o) {
  std::vector<OptionRow> table = {
      {.name = "checkpoint",
       .group = kRun,
       .value = "DIR",
       .help = "a checkpoint, or a run directory (its newest)",
       .field = &o.checkpoint,
       .required = true},
      {"data", kData, "PATH...", "without it, the held-out data of the run", &o.data},
      {"data-max-bytes", kData, "BYTES", "use whole text files until this many bytes; 0: all",
       &o.data_max_bytes, 0, kMostTokens},
      {"eval-tokens", kData, "TOKENS", "auto: all of it", &o.eval_tokens, 1, kMostTokens},
      {"device-batch-size", kDevices, "ROWS",
       "per device at a time; auto: 4,096 tokens, GPUs 65,536", &o.device_batch_size, 1, kMostRows},
      {"dtype", kDevices, "fp32|bf16", "to compute in; auto: the run's", &o.dtype},
  };
  const std::vector<OptionRow> where = where_rows(o);
  table.insert(table.begin() + 4, where.begin(), where.end());
  return table;
}

std::vector<OptionRow> option_table(SampleOptions& o) {
  return {
      {.name = "checkpoint",
       .group = kRun,
       .value = "DIR",
       .help = "a checkpoint, or a run directory (its newest)",
       .field = &o.checkpoint,
       .required = true},
      {.name = "prompt",
       .group = "Text",
       .value = "TEXT",
       .help = "what the samples continue; without it they start a document",
       .field = &o.prompt},
      {"num-samples", "Text", "N", "how many", &o.num_samples, 1, 1000},
      {"max-tokens", "Text", "N", "length of each, after the prompt", &o.max_tokens, 1, kMostRows},
      {"temperature", "Text", "X", "0: always the most likely token", &o.temperature, 0, 100},
      {"top-k", "Text", "N", "draw from the N most likely tokens; 0: all", &o.top_k, 0, kMostVocab},
      {.name = "seed", .group = "Text", .value = "N", .help = "of the draws", .field = &o.seed},
      backend_row(o.backend),
      {"dtype", kDevices, "fp32|bf16", "to compute in; auto: the run's", &o.dtype},
  };
}

}  // namespace muo
