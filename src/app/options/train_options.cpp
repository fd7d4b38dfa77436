#include <fmt/format.h>

#include <string_view>

#include "app/options/option_table.h"
#include "kernels/attention_method.h"
#include "optim/newton_schulz_form.h"
#include "optim/optimizer_version.h"
#include "optim/sharding_plan.h"

namespace muo::app {
namespace {

using enum OptionClass;

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

template <class Names>
std::vector<std::string_view> with_auto(const Names& names) {
  std::vector<std::string_view> out = {"auto"};
  out.insert(out.end(), names.begin(), names.end());
  return out;
}

std::vector<OptionRow> data_rows(data::DataOptions& o) {
  const OptionGroup row{kDataGroup};
  return {
      row("data", kHost, "PATH...", "text files, folders of text, or .bin token shards", &o.paths),
      row("val-data", kHost, "PATH...", "held-out data; without it a tenth of --data is held out",
          &o.val_paths),
      row("data-max-bytes", kHost, "BYTES", "use whole text files until this many bytes; 0: all",
          &o.max_bytes, {0, kMostTokens}),
      row("tokenizer", kShape, "NAME", "byte, .json, SentencePiece, tiktoken; of shards: theirs",
          &o.tokenizer)
          .naming_file(),
      row("vocab-size", kShape, "N", "of .bin shards: ids are below; 0: the tokenizer's",
          &o.vocab_size, {0, kMostVocab}),
      row("packing", kHost, "NAME", "what rows of tokens are made of", &o.packing)
          .explained("\n contiguous: blocks of the data, wherever documents begin"
                     "\n best-fit: documents, packed and cropped as nanochat does")
          .training(),
      row("bos-token", kCaptured, "ID", "of .bin shards: begins documents; -1: the tokenizer's",
          &o.bos_token, {0, kMostVocab, kOrNever}),
  };
}

std::vector<OptionRow> model_rows(ModelOptions& o) {
  const OptionGroup row{kModelGroup};
  std::vector<OptionRow> rows = {row("depth", kShape, "N",
                                     "layers; width is 64 per layer rounded up to heads of 128",
                                     &o.depth, {1, kMostLayers})
                                     .replacing({"n-layer", "n-embd", "n-head", "n-kv-head"})};
  std::vector<std::string_view> of_preset;
  std::size_t preset_at = 0;
  for (std::size_t i = 0; i < kGptFields; ++i) {
    const GptField& field = gpt_fields()[i];
    if (field.option.name.empty()) continue;
    if (field.by_preset && of_preset.empty()) preset_at = rows.size();
    if (field.by_preset) of_preset.push_back(field.option.name);
    OptionRow& bound = rows.emplace_back(field.option);
    bound.field = std::visit([&](auto member) -> OptionRow::Field { return &(o.told.*member); },
                             field.member);
    bound.is_told = &o.is_told[i];
  }
  rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(preset_at),
              row("model", kShape, "NAME", "nanochat: all extras below; plain: none", &o.preset)
                  .replacing(of_preset));
  rows.push_back(row("document-mask", kShape, "on|off", "attention and smear stay within documents",
                     &o.document_mask)
                     .training());
  return rows;
}

std::vector<OptionRow> batch_rows(BatchOptions& o) {
  const OptionGroup row{"Batch and length", /*trains=*/true};
  return {
      row("device-batch-size", kShape, "ROWS",
          "rows per device and micro-step; auto: the most that fit", &o.device_rows,
          {1, kMostRows}),
      row("total-batch-size", kShape, "TOKENS",
          "per step: rows x T x devices x N; auto: the target", &o.total_tokens, {1, kMostTokens}),
      row("target-batch-size", kShape, "TOKENS",
          "per step, or nearest that devices divide; auto: by depth", &o.target_tokens,
          {1, kMostTokens})
          .replacing({"total-batch-size", "device-batch-size"}),
      row("num-iterations", kMemory, "STEPS", "steps to train; overrides --target-flops",
          &o.iterations, {1, kMostSteps})
          .replacing({"target-flops"}),
      row("target-flops", kMemory, "FLOPS", "steps by compute; goes before the ratio",
          &o.target_flops, {1, 1e30})
          .replacing({"num-iterations"}),
      row("target-param-data-ratio", kMemory, "RATIO",
          "tokens to train on, per weight of matrices and head", &o.target_param_data_ratio,
          {1e-9, 1e9})
          .replacing({"num-iterations", "target-flops"}),
  };
}

std::vector<OptionRow> optimizer_rows(optim::OptimizerOptions& o) {
  const OptionGroup row{"Optimizer", /*trains=*/true};
  return {
      row("matrix-lr", kMemory, "LR", "of Muon; this and the next three are scaled", &o.matrix_lr,
          {0, 1e3}),
      row("embedding-lr", kMemory, "LR", "of the embedding, AdamW", &o.embedding_lr, {0, 1e3}),
      row("unembedding-lr", kMemory, "LR", "of the head, AdamW", &o.unembedding_lr, {0, 1e3}),
      row("scalar-lr", kMemory, "LR", "of scalar weights, AdamW", &o.scalar_lr, {0, 1e3}),
      row("weight-decay", kMemory, "X", "of Muon, at depth 12 and 524288 tokens per step; scaled",
          &o.weight_decay, {0, 1e3}),
      row("batch-lr-scale", kMemory, "X", "of all rates; auto: sqrt(batch / 524288)",
          &o.batch_lr_scale, {0, 1e3}),
      row("width-lr-scale", kMemory, "X", "of embeddings and head; auto: sqrt(768 / width)",
          &o.width_lr_scale, {0, 1e3}),
      row("weight-decay-scale", kMemory, "X", "auto: sqrt(batch / 524288) x d12's tokens / own",
          &o.weight_decay_scale, {0, 1e6}),
      row("warmup-steps", kMemory, "STEPS", "learning rates rise from 0", &o.warmup_steps,
          {0, kMostSteps}),
      row("warmdown-ratio", kMemory, "FRACTION", "of the run, at its end, in which they fall",
          &o.warmdown_ratio, {0, 1}),
      row("final-lr-frac", kMemory, "FRACTION", "of the rates at the end", &o.final_lr_frac,
          {0, 1}),
      row("optimizer-spec", kShape, "VERSION",
          "of nanochat's Muon and AdamW: head, 2026-01, 2025-10", &o.version)
          .one_of(names_of(optim::optimizer_versions())),
      row("newton-schulz", kShape, "FORM", "how Muon's iteration is computed", &o.newton_schulz)
          .one_of(names_of(optim::newton_schulz_forms()),
                  summaries_of(optim::newton_schulz_forms())),
  };
}

std::vector<OptionRow> guard_rows(optim::GuardOptions& o) {
  const OptionGroup row{"Numerics guard", /*trains=*/true};
  return {
      row("max-grad-norm", kMemory, "X", "clip gradients to this norm; 0: off", &o.max_grad_norm,
          {0, 1e18}),
      row("outlier-deviations", kMemory, "X",
          "a loss or norm so far above its mean is an outlier; 0: none", &o.outlier_deviations,
          {0, 1e6}),
      row("on-outlier", kMemory, "log|skip", "skip: its update is not committed", &o.on_outlier),
      row("max-skipped", kHost, "N", "more skipped updates than this end the run; -1: never",
          &o.max_skipped, {0, kMostSteps, kOrNever}),
  };
}

// --strategy to --verify-sync-every, behind device_rows().
std::vector<OptionRow> execution_rows(TrainOptions& o) {
  const OptionGroup row{kDevicesGroup};
  return {
      row("strategy", kShape, "NAME", "who updates which weights", &o.sharding.strategy)
          .one_of(with_auto(optim::strategy_names()),
                  "\n auto: parallel for --shard weights, ddp for none, else balanced" +
                      summaries_of(optim::strategy_list()))
          .training(),
      row("gather", kCaptured, "pipelined|simple",
          "of new weights: beside the next forward, or at once", &o.sharding.gather),
      row("shard", kShape, "WHAT", "what devices share, each with those above it (ZeRO)",
          &o.sharding.shard)
          .explained("\n none: nothing (strategy ddp)\n optimizer: its state, and fp32 masters"
                     "\n gradients: their sums; each micro-step's are reduced"
                     "\n weights: gathered layer by layer as they are read"),
      row("replicas", kShape, "own|common|sharded",
          "of weights: one each; on the host, one for all; none", &o.sharding.replicas),
      row("recompute", kShape, "NAME", "activations to recompute in backward; auto: as few as fit",
          &o.memory.recompute),
      row("memory-limit", kShape, "SIZE",
          "of the process on the host, of each GPU: 12GB; auto: all", &o.memory.limit, {1 << 20}),
      row("graph", kCaptured, "on|off", "capture the step once, then replay it", &o.capture.graph),
      row("graph-branches", kCaptured, "3|1",
          "of that graph; auto: 1 where ranks share a GPU, else 3", &o.capture.branches)
          .one_of({"auto", "3", "1"}, "\n 3: computing, collectives and updates; 1: all in one"),
      row("seed", kHost, "N", "of initial weights and data order", &o.seed).training(),
      row("verify-sync-every", kHost, "STEPS", "compare the devices' weights; -1: never",
          &o.run.verify_sync_every, {1, kMostSteps, kOrNever}),
  };
}

std::vector<OptionRow> number_rows(NumberOptions& o) {
  const OptionGroup row{"Number formats"};
  return {
      row("dtype", kShape, "fp32|bf16", "to compute in; auto: fp32 on the host, bf16 on GPUs",
          &o.dtype)
          .replacing({"weight-wire"})
          .training(),
      row("gradient-dtype", kShape, "fp32|bf16",
          "of gradients of bf16 weights until they are summed", &o.gradients)
          .replacing({"gradient-wire"})
          .training(),
      row("gradient-wire", kShape, "fp32|bf16",
          "of gradients in collectives; auto: --gradient-dtype", &o.gradient_wire)
          .training(),
      row("weight-wire", kShape, "fp32|bf16", "of updated weights on their way; auto: --dtype",
          &o.weight_wire)
          .training(),
      row("gemm-table", kCaptured, "FILE",
          "algorithms of GPUs' products; missing ones are measured, added", &o.gemm_table)
          .naming_file(),
      row("tune", kCaptured, "once|now|off", "products of GPUs; auto: once, off if deterministic",
          &o.tune)
          .explained("\n once: measure what the user's cache lacks, keep it there"
                     "\n now: all again\n off: what the library proposes"),
      row("attention", kShape, "NAME", "GPUs' kernels; auto: MUO_ATTENTION, else cuDNN's or own",
          &o.attention)
          .training(),
      row("deterministic", kCaptured, "on|off",
          "the same bits every time; auto: off where cuDNN is faster", &o.deterministic)
          .training(),
      row("fused-products", kCaptured, "on|off",
          "ReLU^2 in GPUs' products; auto: where they have kernels", &o.fused_products)
          .training(),
      row("master-weights", kShape, "fp32|split",
          "of weights of bf16; split: 16 bits beside the weight", &o.master_weights)
          .training(),
      row("momentum-state", kShape, "fp32|bf16", "Muon's momentum; bf16 is rounded stochastically",
          &o.momentum_state)
          .training(),
      row("adam-state", kShape, "fp32|bf16", "AdamW's moments; bf16 is rounded stochastically",
          &o.adam_state)
          .training(),
      row("embedding-state", kShape, "fp32|bf16",
          "the same of embeddings alone, to nearest as nanochat's", &o.embedding_state)
          .training(),
  };
}

std::vector<OptionRow> run_rows(TrainOptions& o) {
  const OptionGroup row{kRunGroup};
  return {
      row("out", kHost, "DIR", "run directory; without it runs/<date>-<time>-<pid>", &o.run.out)
          .unsaved(),
      row("resume", kHost, "auto|DIR", "go on from a run or checkpoint; auto: the newest, if any",
          &o.run.resume)
          .unsaved(),
      row("init-from", kHost, "DIR", "start from the weights of a checkpoint, at step 0",
          &o.run.init_from)
          .unsaved(),
      row("eval-every", kHost, "STEPS", "-1: never", &o.evaluation.every,
          {1, kMostSteps, kOrNever}),
      row("eval-tokens", kHost, "TOKENS", "of held-out data per evaluation", &o.evaluation.tokens,
          {1, kMostTokens}),
      row("save-every", kHost, "STEPS", "checkpoints besides the last; -1: never", &o.save.every,
          {1, kMostSteps, kOrNever}),
      row("save-minutes", kHost, "X", "a checkpoint at least so often; -1: never", &o.save.minutes,
          {0.001, 1e6, kOrNever}),
      row("save-before-eval", kHost, "SECONDS",
          "a checkpoint before evaluations that take longer; -1: never", &o.save.before_eval,
          {0, 1e6, kOrNever}),
      row("keep-last", kHost, "N", "keep only the N newest whole checkpoints; -1: all",
          &o.save.keep_last, {1, kMostSteps, kOrNever}),
      row("keep-every", kHost, "STEPS", "also keep every so many steps; -1: none",
          &o.save.keep_every, {1, kMostSteps, kOrNever}),
      row("save-mode", kHost, "auto|background|wait",
          "train on while one is written; auto: if memory allows", &o.save.mode),
      row("on-save-error", kHost, "stop|continue",
          "continue: log it and try again at the next save", &o.save.on_error),
      row("sample-every", kHost, "STEPS", "print a sample (text only); -1: never",
          &o.evaluation.sample_every, {1, kMostSteps, kOrNever}),
      row("log-every", kHost, "STEPS", "between lines of metrics.jsonl", &o.run.log_every,
          {1, kMostSteps}),
      row("norms-every", kHost, "STEPS",
          "between lines of the size of each matrix's update; -1: never", &o.run.norms_every,
          {1, kMostSteps, kOrNever}),
      row("tensorboard", kHost, "on|off",
          "write the same, and samples, as TensorBoard's event files", &o.run.tensorboard),
      row("alarms", kHost, "on|off", "say when loss, speed, memory or data are not as before",
          &o.run.alarms),
      row("store-port", kHost, "PORT",
          "where processes of one world meet; auto: MASTER_PORT + 1, or by the launch",
          &o.devices.store_port, {1, 65535})
          .unsaved(),
      row("stuck-after", kHost, "SECONDS", "a run that stands still for so long fails; 0: never",
          &o.run.stuck_after, {0, 1e6}),
      row("profile-steps", kHost, "A:B",
          "for profilers: steps A to B - 1 in the NVTX range profile", &o.run.profile_steps)
          .unsaved(),
      row("graph-dot", kHost, "FILE", "write the captured step of rank 0 for Graphviz",
          &o.run.graph_dot)
          .unsaved(),
  };
}

}  // namespace

std::vector<OptionRow> option_table(TrainOptions& o) {
  std::vector<OptionRow> table;
  for (const auto& rows :
       {data_rows(o.data), model_rows(o.model), batch_rows(o.batch), optimizer_rows(o.optimizer),
        guard_rows(o.guard), device_rows(o.devices, kShape), execution_rows(o),
        number_rows(o.numbers), run_rows(o)})
    table.insert(table.end(), rows.begin(), rows.end());
  return table;
}

}  // namespace muo::app
