#include <fmt/format.h>

#include <string_view>

#include "app/options/option_groups.h"
#include "app/options/option_table.h"
#include "kernels/attention_method.h"
#include "optim/newton_schulz.h"
#include "optim/optimizer_version.h"
#include "optim/sharding_plan.h"

namespace muo {
namespace {

using enum OptionClass;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kNumbers = "Number formats";

template <class Rows>
std::vector<std::string_view> names_of(const Rows& rows) {
  std::vector<std::string_view> out;
  for (const auto& row : rows)
    out.push_back(row.name);
  return out;
}

// "\n name: what it is", for each.
template <class Rows>
std::string summaries_of(const Rows& rows) {
  std::string out;
  for (const auto& row : rows)
    out += fmt::format("\n {}: {}", row.name, row.summary);
  return out;
}

std::vector<OptionRow> data_rows(DataOptions& o) {
  return {
      {"data", kDataGroup, kHost, "PATH...", "text files, folders of text, or .bin token shards",
       &o.paths},
      {"val-data", kDataGroup, kHost, "PATH...",
       "held-out data; without it a tenth of --data is held out", &o.val_paths},
      {"data-max-bytes", kDataGroup, kHost, "BYTES",
       "use whole text files until this many bytes; 0: all", &o.max_bytes, 0, kMostTokens},
      {.name = "tokenizer",
       .group = kDataGroup,
       .kind = kShape,
       .value = "NAME",
       .help = "of text; byte: 256 bytes and a start-of-document token",
       .field = &o.tokenizer,
       .choices = {"byte"}},
      {"vocab-size", kDataGroup, kShape, "N",
       "of .bin shards: ids are below; 0: the byte tokenizer's", &o.vocab_size, 0, kMostVocab},
  };
}

std::vector<OptionRow> model_rows(ModelOptions& o) {
  std::vector<OptionRow> rows = {
      {.name = "depth",
       .group = kModel,
       .kind = kShape,
       .value = "N",
       .help = "layers; width is 64 per layer rounded up to heads of 128",
       .field = &o.depth,
       .low = 1,
       .high = 1024,
       .replaces = {"n-layer", "n-embd", "n-head", "n-kv-head"}}};
  std::vector<std::string_view> of_preset;
  std::size_t preset_at = 0;
  for (std::size_t i = 0; i < kGptFields; ++i) {
    const GptField& field = gpt_fields()[i];
    if (field.option.empty()) continue;
    if (field.by_preset && of_preset.empty()) preset_at = rows.size();
    if (field.by_preset) of_preset.push_back(field.option);
    rows.push_back(
        {.name = field.option,
         .group = kModel,
         .kind = field.kind,
         .value = field.value,
         .help = field.help,
         .field = std::visit([&](auto member) -> OptionRow::Field { return &(o.told.*member); },
                             field.member),
         .low = field.low,
         .high = field.high,
         .replaces = field.replaces,
         .is_told = &o.is_told[i]});
  }
  rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(preset_at),
              {.name = "model",
               .group = kModel,
               .kind = kShape,
               .value = "NAME",
               .help = "nanochat: all extras below; plain: none",
               .field = &o.preset,
               .choices = {"plain", "nanochat"},
               .replaces = of_preset});
  return rows;
}

std::vector<OptionRow> batch_rows(BatchOptions& o) {
  return {
      {"device-batch-size", kBatchGroup, kShape, "ROWS",
       "rows per device and micro-step; auto: the most that fit", &o.device_rows, 1, kMostRows},
      {"total-batch-size", kBatchGroup, kShape, "TOKENS",
       "per step: rows x T x devices x N; auto: the target", &o.total_tokens, 1, kMostTokens},
      {.name = "target-batch-size",
       .group = kBatchGroup,
       .kind = kShape,
       .value = "TOKENS",
       .help = "per step, or nearest that devices divide; auto: by depth",
       .field = &o.target_tokens,
       .low = 1,
       .high = kMostTokens,
       .replaces = {"total-batch-size", "device-batch-size"}},
      {.name = "num-iterations",
       .group = kBatchGroup,
       .kind = kMemory,
       .value = "STEPS",
       .help = "steps to train; goes before --target-flops",
       .field = &o.iterations,
       .low = 1,
       .high = kMostSteps,
       .replaces = {"target-flops"}},
      {.name = "target-flops",
       .group = kBatchGroup,
       .kind = kMemory,
       .value = "FLOPS",
       .help = "steps by compute; goes before the ratio",
       .field = &o.target_flops,
       .low = 1,
       .high = 1e30,
       .replaces = {"num-iterations"}},
      {.name = "target-param-data-ratio",
       .group = kBatchGroup,
       .kind = kMemory,
       .value = "RATIO",
       .help = "tokens to train on, per weight of matrices and head",
       .field = &o.target_param_data_ratio,
       .low = 1e-9,
       .high = 1e9,
       .replaces = {"num-iterations", "target-flops"}},
  };
}

std::vector<OptionRow> optimizer_rows(OptimizerOptions& o) {
  return {
      {"matrix-lr", kOptimizerGroup, kMemory, "LR", "of Muon; this and the next three are scaled",
       &o.matrix_lr, 0, 1e3},
      {"embedding-lr", kOptimizerGroup, kMemory, "LR", "of the embedding, AdamW", &o.embedding_lr,
       0, 1e3},
      {"unembedding-lr", kOptimizerGroup, kMemory, "LR", "of the head, AdamW", &o.unembedding_lr, 0,
       1e3},
      {"scalar-lr", kOptimizerGroup, kMemory, "LR", "of scalar weights, AdamW", &o.scalar_lr, 0,
       1e3},
      {"weight-decay", kOptimizerGroup, kMemory, "X",
       "of Muon, at depth 12 and 524288 tokens per step; scaled", &o.weight_decay, 0, 1e3},
      {"batch-lr-scale", kOptimizerGroup, kMemory, "X", "of all rates; auto: sqrt(batch / 524288)",
       &o.batch_lr_scale, 0, 1e3},
      {"width-lr-scale", kOptimizerGroup, kMemory, "X",
       "of embeddings and head; auto: sqrt(768 / width)", &o.width_lr_scale, 0, 1e3},
      {"weight-decay-scale", kOptimizerGroup, kMemory, "X",
       "auto: sqrt(batch / 524288) x d12's tokens / own", &o.weight_decay_scale, 0, 1e6},
      {"warmup-steps", kOptimizerGroup, kMemory, "STEPS", "learning rates rise from 0",
       &o.warmup_steps, 0, kMostSteps},
      {"warmdown-ratio", kOptimizerGroup, kMemory, "PART", "last part of the run, where they fall",
       &o.warmdown_ratio, 0, 1},
      {"final-lr-frac", kOptimizerGroup, kMemory, "PART", "of the rates at the end",
       &o.final_lr_frac, 0, 1},
      {.name = "optimizer-spec",
       .group = kOptimizerGroup,
       .kind = kShape,
       .value = "VERSION",
       .help = "of nanochat's Muon and AdamW: head, 2026-01, 2025-10",
       .field = &o.version,
       .choices = names_of(optimizer_versions())},
      {.name = "newton-schulz",
       .group = kOptimizerGroup,
       .kind = kShape,
       .value = "FORM",
       .help = "how Muon's iteration is computed",
       .field = &o.newton_schulz,
       .choices = names_of(newton_schulz_forms()),
       .choices_help = summaries_of(newton_schulz_forms())},
  };
}

std::vector<OptionRow> guard_rows(GuardOptions& o) {
  return {
      {"max-grad-norm", kGuardGroup, kMemory, "X",
       "gradients of a larger norm are scaled to it; 0: none are", &o.max_grad_norm, 0, 1e18},
      {"outlier-deviations", kGuardGroup, kMemory, "X",
       "a loss or norm so far above its mean is an outlier; 0: none", &o.outlier_deviations, 0,
       1e6},
      {.name = "on-outlier",
       .group = kGuardGroup,
       .kind = kMemory,
       .value = "log|skip",
       .help = "skip: its update is not committed",
       .field = &o.on_outlier,
       .choices = {"log", "skip"}},
      {"max-skipped", kGuardGroup, kHost, "N",
       "more skipped updates than this end the run; -1: never", &o.max_skipped, 0, kMostSteps,
       true},
  };
}

std::vector<OptionRow> sharding_rows(ShardingOptions& o) {
  return {
      {.name = "strategy",
       .group = kDevicesGroup,
       .kind = kShape,
       .value = "NAME",
       .help = "who updates which weights",
       .field = &o.strategy,
       .choices = names_of(strategy_list()),
       .choices_help = summaries_of(strategy_list())},
      {.name = "gather",
       .group = kDevicesGroup,
       .kind = kCaptured,
       .value = "pipelined|simple",
       .help = "of new weights: beside the next forward, or at once",
       .field = &o.gather,
       .choices = {"pipelined", "simple"}},
      {.name = "replicas",
       .group = kDevicesGroup,
       .kind = kShape,
       .value = "own|common",
       .help = "of weights: one each, or, on the host, one for all",
       .field = &o.replicas,
       .choices = {"auto", "own", "common"}},
      {.name = "accumulate",
       .group = kDevicesGroup,
       .kind = kShape,
       .value = "local|sharded",
       .help = "reduce gradients once a step, or in each micro-step",
       .field = &o.accumulate,
       .choices = {"local", "sharded"}},
  };
}

std::vector<OptionRow> capture_rows(CaptureOptions& o) {
  return {
      {"graph", kDevicesGroup, kCaptured, "on|off", "capture the step once, then replay it",
       &o.graph},
      {.name = "graph-branches",
       .group = kDevicesGroup,
       .kind = kCaptured,
       .value = "3|1",
       .help = "computing, collectives and updates side by side, or in one",
       .field = &o.branches,
       .choices = {"3", "1"}},
  };
}

std::vector<OptionRow> number_rows(NumberOptions& o) {
  return {
      {.name = "dtype",
       .group = kNumbers,
       .kind = kShape,
       .value = "fp32|bf16",
       .help = "to compute in; auto: fp32 on the host, bf16 on GPUs",
       .field = &o.dtype,
       .replaces = {"weight-wire"}},
      {"gradient-wire", kNumbers, kShape, "fp32|bf16",
       "of gradients on their way to be summed; auto: fp32", &o.gradient_wire},
      {"weight-wire", kNumbers, kShape, "fp32|bf16",
       "of updated weights on their way; auto: --dtype", &o.weight_wire},
      {"gemm-table", kNumbers, kCaptured, "FILE",
       "algorithms of GPUs' products; missing ones are measured, added", &o.gemm_table},
      {.name = "attention",
       .group = kNumbers,
       .kind = kShape,
       .value = "NAME",
       .help = "GPUs' kernels; auto: MUO_ATTENTION, else cuDNN's or own",
       .field = &o.attention,
       .choices = {kAttentionKernels.begin(), kAttentionKernels.end()}},
      {"deterministic", kNumbers, kCaptured, "on|off",
       "off: gradients in any order on GPUs; nothing on the host", &o.deterministic},
      {"embedding-state", kNumbers, kShape, "fp32|bf16",
       "of embeddings in the optimizer; nanochat's is bf16", &o.embedding_state},
  };
}

std::vector<OptionRow> run_rows(TrainOptions& o) {
  return {
      {.name = "out",
       .group = kRunGroup,
       .kind = kHost,
       .value = "DIR",
       .help = "run directory; without it runs/<date>-<time>-<pid>",
       .field = &o.run.out,
       .saved = false},
      {.name = "resume",
       .group = kRunGroup,
       .kind = kHost,
       .value = "auto|DIR",
       .help = "go on from a run or checkpoint; auto: the newest, if any",
       .field = &o.run.resume,
       .saved = false},
      {.name = "init-from",
       .group = kRunGroup,
       .kind = kHost,
       .value = "DIR",
       .help = "start from the weights of a checkpoint, at step 0",
       .field = &o.run.init_from,
       .saved = false},
      {"eval-every", kRunGroup, kHost, "STEPS", "-1: never", &o.evaluation.every, 1, kMostSteps,
       true},
      {"eval-tokens", kRunGroup, kHost, "TOKENS", "of held-out data per evaluation",
       &o.evaluation.tokens, 1, kMostTokens},
      {"save-every", kRunGroup, kHost, "STEPS", "checkpoints besides the last; -1: never",
       &o.save.every, 1, kMostSteps, true},
      {"save-minutes", kRunGroup, kHost, "X", "a checkpoint at least so often; -1: never",
       &o.save.minutes, 0.001, 1e6, true},
      {"save-before-eval", kRunGroup, kHost, "SECONDS",
       "a checkpoint before evaluations that take longer; -1: never", &o.save.before_eval, 0, 1e6,
       true},
      {"keep-last", kRunGroup, kHost, "N",
       "remove older checkpoints than the N newest good; -1: none", &o.save.keep_last, 1,
       kMostSteps, true},
      {"keep-every", kRunGroup, kHost, "STEPS", "but not those of steps that this divides",
       &o.save.keep_every, 1, kMostSteps, true},
      {.name = "save-mode",
       .group = kRunGroup,
       .kind = kHost,
       .value = "auto|background|wait",
       .help = "train on while one is written; auto: if memory allows",
       .field = &o.save.mode,
       .choices = {"auto", "background", "wait"}},
      {.name = "on-save-error",
       .group = kRunGroup,
       .kind = kHost,
       .value = "stop|continue",
       .help = "continue: log it and try again at the next save",
       .field = &o.save.on_error,
       .choices = {"stop", "continue"}},
      {"sample-every", kRunGroup, kHost, "STEPS", "print a sample (text only); -1: never",
       &o.evaluation.sample_every, 1, kMostSteps, true},
      {"log-every", kRunGroup, kHost, "STEPS", "between lines of metrics.jsonl", &o.run.log_every,
       1, kMostSteps},
      {"stuck-after", kRunGroup, kHost, "SECONDS",
       "a run that stands still for so long fails; 0: never", &o.run.stuck_after, 0, 1e6},
      {.name = "profile-steps",
       .group = kRunGroup,
       .kind = kHost,
       .value = "A:B",
       .help = "for profilers: steps A to B - 1 in the NVTX range profile",
       .field = &o.run.profile_steps,
       .saved = false},
      {.name = "graph-dot",
       .group = kRunGroup,
       .kind = kHost,
       .value = "FILE",
       .help = "write the captured step of rank 0 for Graphviz",
       .field = &o.run.graph_dot,
       .saved = false},
  };
}

}  // namespace

std::vector<OptionRow> option_table(TrainOptions& o) {
  const std::vector<OptionRow> seed_and_sync = {
      {.name = "seed",
       .group = kDevicesGroup,
       .kind = kHost,
       .value = "N",
       .help = "of initial weights and data order",
       .field = &o.seed},
      {"verify-sync-every", kDevicesGroup, kHost, "STEPS",
       "compare the devices' weights; -1: never", &o.run.verify_sync_every, 1, kMostSteps, true},
  };
  std::vector<OptionRow> table;
  for (const auto& rows :
       {data_rows(o.data), model_rows(o.model), batch_rows(o.batch), optimizer_rows(o.optimizer),
        guard_rows(o.guard), device_rows(o.devices, kShape), sharding_rows(o.sharding),
        capture_rows(o.capture), seed_and_sync, number_rows(o.numbers), run_rows(o)})
    table.insert(table.end(), rows.begin(), rows.end());
  return table;
}

}  // namespace muo
