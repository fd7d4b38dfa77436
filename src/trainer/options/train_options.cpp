#include <fmt/format.h>

#include <string_view>

#include "kernels/attention_method.h"
#include "optim/newton_schulz_form.h"
#include "optim/optimizer_version.h"
#include "optim/sharding_plan.h"
#include "trainer/options/option_table.h"

namespace muo::trainer {
namespace {

using enum OptionClass;

template <class Rows>
std::vector<std::string_view> names_of(const Rows& rows) {
  std::vector<std::string_view> out;
  for (const auto& row : rows)
    out.push_back(row.name);
  return out;
}

// Returns "\n NAME: SUMMARY" for each row.
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
      row("val-data", kHost, "PATH...", "validation data; default: a held-out tenth of --data",
          &o.val_paths),
      row("data-max-bytes", kHost, "BYTES", "max bytes of text, in whole files; 0: no limit",
          &o.max_bytes, {0, kMaxTokens}),
      row("tokenizer", kShape, "NAME", "byte, or a tokenizer.json, SentencePiece or tiktoken file",
          &o.tokenizer)
          .is_file(),
      row("vocab-size", kShape, "N", "vocabulary size of .bin shards; 0: the tokenizer's",
          &o.vocab_size, {0, kMaxVocab}),
      row("packing", kHost, "NAME", "how documents are cut into rows of tokens", &o.packing)
          .explained("\n contiguous: blocks of the data, ignoring document boundaries"
                     "\n best-fit: documents, packed and cropped as nanochat does")
          .training(),
      row("bos-token", kCaptured, "ID",
          "start-of-document token of .bin shards; -1: the tokenizer's", &o.bos_token,
          {0, kMaxVocab, kOrNever}),
  };
}

std::vector<OptionRow> model_rows(ModelOptions& o) {
  const OptionGroup row{kModelGroup};
  std::vector<OptionRow> rows = {
      row("depth", kShape, "N", "layers; width: --aspect-ratio x depth, in whole heads", &o.depth,
          {1, kMaxLayers})
          .replacing({"n-layer", "n-embd", "n-head", "n-kv-head"}),
      row("aspect-ratio", kShape, "N", "width for each layer of --depth", &o.aspect_ratio,
          {1, kMaxWidth})
          .replacing({"n-embd", "n-head", "n-kv-head"}),
      row("head-dim", kShape, "N", "size of a head, where the width allows it", &o.head_size,
          {2, kMaxWidth})
          .replacing({"n-head", "n-kv-head"})};
  std::vector<std::string_view> of_preset;
  std::size_t preset_at = 0;
  for (std::size_t i = 0; i < kGptFields; ++i) {
    const GptField& field = gpt_fields()[i];
    if (field.option.name.empty()) continue;
    if (field.by_preset && of_preset.empty()) preset_at = rows.size();
    if (field.by_preset) of_preset.push_back(field.option.name);
    OptionRow& bound = rows.emplace_back(field.option);
    bound.field = std::visit([&](auto member) -> OptionRow::Field { return &(o.values.*member); },
                             field.member);
    bound.is_set = &o.is_set[i];
  }
  rows.insert(
      rows.begin() + static_cast<std::ptrdiff_t>(preset_at),
      row("model", kShape, "NAME", "preset of extras below; nanochat: all, plain: none", &o.preset)
          .replacing(of_preset));
  rows.push_back(row("document-mask", kShape, "on|off",
                     "keep attention and smear within a document", &o.document_mask)
                     .training());
  return rows;
}

std::vector<OptionRow> batch_rows(BatchOptions& o) {
  const OptionGroup row{"Batch and length", /*trains=*/true};
  return {
      row("device-batch-size", kShape, "ROWS",
          "rows per device and micro-step; auto: as many as fit", &o.device_rows, {1, kMaxRows}),
      row("total-batch-size", kShape, "TOKENS", "tokens per step; auto: --target-batch-size",
          &o.total_tokens, {1, kMaxTokens})
          .explained("\n TOKENS@0,TOKENS@STEP,...: from a step, or share of the run, on"),
      row("target-batch-size", kShape, "TOKENS",
          "tokens per step, rounded for the devices; auto: by depth", &o.target_tokens,
          {1, kMaxTokens})
          .replacing({"total-batch-size", "device-batch-size"}),
      row("num-iterations", kMemory, "STEPS", "training steps; overrides --target-flops",
          &o.iterations, {1, kMaxSteps})
          .replacing({"target-flops"}),
      row("target-flops", kMemory, "FLOPS", "training FLOPs; overrides --target-param-data-ratio",
          &o.target_flops, {1, 1e30})
          .replacing({"num-iterations"}),
      row("target-param-data-ratio", kMemory, "RATIO",
          "training tokens per weight of the matrices and the head", &o.target_param_data_ratio,
          {1e-9, 1e9})
          .replacing({"num-iterations", "target-flops"}),
      row("time-budget", kMemory, "TIME",
          "training time, such as 5m, without evaluations and saves", &o.time_budget)
          .replacing({"num-iterations", "target-flops", "positions-from"}),
      row("positions-from", kMemory, "FILE",
          "repeat the schedules of this metrics.jsonl (--time-budget)", &o.positions_from)
          .is_file()
          .replacing({"num-iterations", "target-flops", "time-budget"}),
  };
}

std::vector<OptionRow> optimizer_rows(optim::OptimizerOptions& o) {
  const OptionGroup row{"Optimizer", /*trains=*/true};
  return {
      row("matrix-lr", kMemory, "LR", "Muon learning rate (scaled with the batch)", &o.matrix_lr,
          {0, 1e3}),
      row("embedding-lr", kMemory, "LR", "AdamW learning rate of the embedding (scaled)",
          &o.embedding_lr, {0, 1e3}),
      row("unembedding-lr", kMemory, "LR", "AdamW learning rate of the head (scaled)",
          &o.unembedding_lr, {0, 1e3}),
      row("scalar-lr", kMemory, "LR", "AdamW learning rate of scalar weights (scaled)",
          &o.scalar_lr, {0, 1e3}),
      row("weight-decay", kMemory, "X", "Muon weight decay at depth 12 and 524288 tokens (scaled)",
          &o.weight_decay, {0, 1e3}),
      row("batch-lr-scale", kMemory, "X",
          "factor on all learning rates; auto: sqrt(batch / 524288)", &o.batch_lr_scale, {0, 1e3}),
      row("width-lr-scale", kMemory, "X", "factor on embedding and head rates; auto: by width",
          &o.width_lr_scale, {0, 1e3}),
      row("weight-decay-scale", kMemory, "X", "factor on weight decay; auto: by batch and horizon",
          &o.weight_decay_scale, {0, 1e6}),
      row("warmup-steps", kMemory, "STEPS", "steps of linear warm-up", &o.warmup_steps,
          {0, kMaxSteps}),
      row("warmdown-ratio", kMemory, "FRACTION",
          "final part of the run in which learning rates decay", &o.warmdown_ratio, {0, 1}),
      row("warmdown-shape", kMemory, "linear|cosine|1-sqrt", "how learning rates decay",
          &o.warmdown_shape),
      row("final-lr-frac", kMemory, "FRACTION", "final learning rate as a fraction of the peak",
          &o.final_lr_frac, {0, 1}),
      row("momentum", kMemory, "X", "Muon momentum after its ramp; auto: by --optimizer-spec",
          &o.momentum, {0, 1}),
      row("momentum-start", kMemory, "X", "Muon momentum at the first step", &o.momentum_start,
          {0, 1}),
      row("momentum-ramp", kMemory, "STEPS", "steps from --momentum-start to --momentum",
          &o.momentum_ramp, {0, kMaxSteps}),
      row("momentum-end", kMemory, "X", "Muon momentum at the end of the warmdown", &o.momentum_end,
          {0, 1}),
      row("nesterov", kMemory, "on|off", "Nesterov momentum in Muon", &o.nesterov),
      row("muon-beta2", kMemory, "X", "decay of Muon's second moment; auto: by --optimizer-spec",
          &o.muon_beta2, {0, 1}),
      row("adam-beta1", kMemory, "X", "AdamW beta1 of all weights; auto: by kind of weight",
          &o.adam_beta1, {0, 0.999999}),
      row("adam-beta2", kMemory, "X", "AdamW beta2 of all weights; auto: by kind of weight",
          &o.adam_beta2, {0, 0.999999}),
      row("adam-eps", kMemory, "X", "AdamW epsilon", &o.adam_eps, {0, 1}),
      row("ns-steps", kCaptured, "N", "Newton-Schulz iterations of Muon", &o.ns_steps,
          {1, optim::kMaxNewtonSchulzSteps}),
      row("optimizer-spec", kShape, "VERSION",
          "version of nanochat's optimizer: head, 2026-01 or 2025-10", &o.version)
          .one_of(names_of(optim::optimizer_versions())),
      row("newton-schulz", kShape, "FORM", "how the Newton-Schulz iteration is computed",
          &o.newton_schulz)
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
          "outlier threshold: standard deviations above mean; 0: off", &o.outlier_deviations,
          {0, 1e6}),
      row("on-outlier", kMemory, "log|skip", "what to do on an outlier; skip: discard its update",
          &o.on_outlier),
      row("max-skipped", kHost, "N", "abort after more skipped updates than this; -1: never",
          &o.max_skipped, {0, kMaxSteps, kOrNever}),
  };
}

// The rows from --strategy to --verify-sync-every, which follow device_rows() in help.
std::vector<OptionRow> execution_rows(TrainOptions& o) {
  const OptionGroup row{kDevicesGroup};
  return {
      row("strategy", kShape, "NAME", "how devices share the optimizer's work",
          &o.sharding.strategy)
          .one_of(with_auto(optim::strategy_names()),
                  "\n auto: parallel for --shard weights, ddp for none, else balanced" +
                      summaries_of(optim::strategy_list()))
          .training(),
      row("gather", kCaptured, "pipelined|simple",
          "gather new weights in the next forward, or at once", &o.sharding.gather),
      row("shard", kShape, "WHAT", "state sharded over devices (ZeRO)", &o.sharding.shard)
          .explained("\n none: nothing (strategy ddp)\n optimizer: optimizer state and fp32 masters"
                     "\n gradients: also gradients, reduced in every micro-step"
                     "\n weights: also weights, gathered layer by layer"),
      row("replicas", kShape, "own|common|sharded",
          "copies of weights: one per rank, one shared, or sharded", &o.sharding.replicas),
      row("recompute", kShape, "NAME", "activations to recompute; auto: as few as needed",
          &o.memory.recompute),
      row("memory-limit", kShape, "SIZE", "max memory of the process (host) or each GPU, e.g. 12GB",
          &o.memory.limit, {1 << 20}),
      row("graph", kCaptured, "on|off", "capture the training step once, then replay it",
          &o.capture.graph),
      row("graph-branches", kCaptured, "3|1", "graph branches; auto: 1 if ranks share a GPU",
          &o.capture.branches)
          .one_of({"auto", "3", "1"}, "\n 3: compute, collectives, updates; 1: all in one"),
      row("graph-micro-steps", kShape, "loop|unrolled",
          "form of micro-steps; auto: unrolled up to 8, else a loop", &o.capture.micro_steps),
      row("seed", kHost, "N", "random seed of initial weights and data order", &o.seed).training(),
      row("verify-sync-every", kHost, "STEPS",
          "steps between checks that ranks' weights agree; -1: never", &o.run.verify_sync_every,
          {1, kMaxSteps, kOrNever}),
  };
}

std::vector<OptionRow> number_rows(NumberOptions& o) {
  const OptionGroup row{"Number formats"};
  return {
      row("dtype", kShape, "fp32|bf16", "compute type; auto: fp32 on the host, bf16 on GPUs",
          &o.dtype)
          .replacing({"weight-wire"})
          .training(),
      row("gradient-dtype", kShape, "fp32|bf16",
          "type of gradients of bf16 weights, before summing", &o.gradients)
          .replacing({"gradient-wire"})
          .training(),
      row("gradient-wire", kShape, "fp32|bf16",
          "type of gradients in collectives; auto: --gradient-dtype", &o.gradient_wire)
          .training(),
      row("weight-wire", kShape, "fp32|bf16",
          "type of updated weights in collectives; auto: --dtype", &o.weight_wire)
          .training(),
      row("gemm-table", kCaptured, "FILE",
          "GEMM algorithms for GPUs; missing ones are measured and added", &o.gemm_table)
          .is_file(),
      row("tune", kCaptured, "once|now|off", "measure GEMM algorithms; auto: off if deterministic",
          &o.tune)
          .explained("\n once: measure what the user's cache lacks, and store it there"
                     "\n now: measure everything again\n off: take the library's first proposal"),
      row("attention", kShape, "NAME", "attention on GPUs; auto: $MUO_ATTENTION, cuDNN or own",
          &o.attention)
          .training(),
      row("deterministic", kCaptured, "on|off",
          "bitwise reproducibility; auto: off where cuDNN is faster", &o.deterministic)
          .training(),
      row("fused-products", kCaptured, "on|off",
          "fuse ReLU^2 into GEMMs on GPUs; auto: where supported", &o.fused_products)
          .training(),
      row("master-weights", kShape, "fp32|split",
          "masters of bf16 weights; split: only their lower 16 bits", &o.master_weights)
          .training(),
      row("momentum-state", kShape, "fp32|bf16",
          "type of Muon's momentum; bf16: stochastic rounding", &o.momentum_state)
          .training(),
      row("adam-state", kShape, "fp32|bf16", "type of AdamW's moments; bf16: stochastic rounding",
          &o.adam_state)
          .training(),
      row("embedding-state", kShape, "fp32|bf16",
          "type of embeddings' moments; bf16: rounded to nearest", &o.embedding_state)
          .training(),
  };
}

std::vector<OptionRow> run_rows(TrainOptions& o) {
  const OptionGroup row{kRunGroup};
  return {
      row("out", kHost, "DIR", "run directory; default: runs/<date>-<time>-<pid>", &o.run.out)
          .unsaved(),
      row("resume", kHost, "auto|DIR", "resume a run or checkpoint; auto: the newest one, if any",
          &o.run.resume)
          .unsaved(),
      row("init-from", kHost, "DIR", "start a new run from the weights of a checkpoint",
          &o.run.init_from)
          .unsaved(),
      row("eval-every", kHost, "STEPS", "steps between evaluations; -1: never", &o.evaluation.every,
          {1, kMaxSteps, kOrNever}),
      row("eval-tokens", kHost, "TOKENS", "validation tokens per evaluation", &o.evaluation.tokens,
          {1, kMaxTokens}),
      row("save-every", kHost, "STEPS", "steps between checkpoints; -1: only the last",
          &o.save.every, {1, kMaxSteps, kOrNever}),
      row("save-minutes", kHost, "X", "max minutes between checkpoints; -1: no limit",
          &o.save.minutes, {0.001, 1e6, kOrNever}),
      row("save-before-eval", kHost, "SECONDS",
          "save before evaluations longer than this; -1: never", &o.save.before_eval,
          {0, 1e6, kOrNever}),
      row("keep-last", kHost, "N", "keep the N newest checkpoints; -1: all", &o.save.keep_last,
          {1, kMaxSteps, kOrNever}),
      row("keep-every", kHost, "STEPS", "steps between checkpoints that are also kept; -1: none",
          &o.save.keep_every, {1, kMaxSteps, kOrNever}),
      row("save-mode", kHost, "auto|background|wait",
          "background: train while saving; auto: if memory allows", &o.save.mode),
      row("on-save-error", kHost, "stop|continue",
          "on a failed save; continue: log it and retry later", &o.save.on_error),
      row("sample-every", kHost, "STEPS", "steps between printed samples (text only); -1: never",
          &o.evaluation.sample_every, {1, kMaxSteps, kOrNever}),
      row("log-every", kHost, "STEPS", "steps between lines of metrics.jsonl", &o.run.log_every,
          {1, kMaxSteps}),
      row("norms-every", kHost, "STEPS",
          "steps between logs of each matrix's update size; -1: never", &o.run.norms_every,
          {1, kMaxSteps, kOrNever}),
      row("tensorboard", kHost, "on|off", "also write TensorBoard event files", &o.run.tensorboard),
      row("alarms", kHost, "on|off", "warn of loss spikes, slow steps, growing memory, slow data",
          &o.run.alarms),
      row("store-port", kHost, "PORT", "rendezvous port; auto: MASTER_PORT + 1, else by launch id",
          &o.devices.store_port, {1, 65535})
          .unsaved(),
      row("stuck-after", kHost, "SECONDS", "abort after this long without progress; 0: never",
          &o.run.stuck_after, {0, 1e6}),
      row("profile-steps", kHost, "A:B", "mark steps A to B - 1 as the NVTX range `profile`",
          &o.run.profile_steps)
          .unsaved(),
      row("timeline", kHost, "FILE", "write a timeline of --profile-steps; default: the third step",
          &o.run.timeline)
          .unsaved(),
      row("graph-dot", kHost, "FILE", "write the captured step of rank 0 as a Graphviz file",
          &o.run.graph_dot)
          .unsaved(),
      row("result", kHost, "FILE|-", "write the result of the run as a line of JSON; -: to stdout",
          &o.run.result)
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

}  // namespace muo::trainer
