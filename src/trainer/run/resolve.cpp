#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "data/training_rows.h"
#include "kernels/attention_method.h"
#include "kernels/fused_product.h"
#include "model/activations.h"
#include "trainer/run/backend.h"
#include "trainer/run/described_gpu.h"
#include "trainer/run/horizon.h"
#include "trainer/run/run_config.h"
#include "trainer/run/scaling.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kDefaultEvalEvery = 250;  // nanochat's
constexpr std::int64_t kDefaultEvalTokens = 131072;
constexpr double kLowPackingShare = 0.5;  // nanochat's data reaches 0.65 in rows of 2048

std::int64_t largest_divisor(std::int64_t value, std::int64_t most) {
  for (std::int64_t d = std::min(value, most); d > 1; --d)
    if (value % d == 0) return d;
  return 1;
}

class Resolver {
 public:
  Resolver(const TrainOptions& options, const data::Corpus& corpus) : corpus_(corpus) {
    run_.options = options;
  }

  RunConfig run() {
    devices();
    attention();
    model();
    packing();
    formats();
    batch();
    determinism();
    fused_products();
    tuning();
    recompute();
    sharding();
    micro_steps();
    paces();
    set_iterations(run_);
    profiled_steps();
    set_hyper_parameters(run_);
    evaluation();
    return std::move(run_);
  }

 private:
  template <class... Values>
  void note(fmt::format_string<Values...> format, Values&&... values) {
    run_.notes.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  void model() {
    ModelOptions& o = run_.options.model;
    model::GptConfig& model = run_.model;
    model = make_gpt_config(o, corpus_.vocab_size);
    model.dtype = run_.options.numbers.dtype.value_or(run_.group.plugin == nullptr ? DType::kF32
                                                                                   : DType::kBF16);
    if (o.document_mask) model.document_token = document_token();
    model.attention.kernels = kernels_;
    model::check_config(model);
    model.head_chunk_bytes = head_chunk_bytes(run_.group);
    if (!o.has(&model::GptConfig::n_layer) && !o.has(&model::GptConfig::n_embd) &&
        !o.has(&model::GptConfig::n_head))
      note("model: depth {} is {} layers, width {}, {} heads", o.depth, model.n_layer, model.n_embd,
           model.n_head);
    o.set_all(model);
    const model::ParameterCounts counts = model::count_parameters(run_.model);
    run_.parameters = counts.total();
    run_.scaling_parameters = counts.scaling();
    run_.flops_per_token = model::flops_per_token(run_.model);
    run_.targets = scaling_targets(model, o, run_.options.batch.target_param_data_ratio);
    if (corpus_.train != nullptr) run_.train_tokens = corpus_.train->size();
    need_tokens(corpus_.train.get(), "training data", "--data");
  }

  [[nodiscard]] std::int32_t document_token() {
    if (!corpus_.bos)
      throw InputError(
          "--document-mask on: the token that begins documents is unknown; give --bos-token, or "
          "the --tokenizer of the shards");
    note("attention: within documents, which begin with token {}", *corpus_.bos);
    return *corpus_.bos;
  }

  void packing() {
    if (corpus_.train_documents == nullptr) return;
    const data::PackingUse use =
        data::measure_packing(corpus_, run_.model.seq_len, run_.options.seed);
    run_.packing_share = use.share;
    run_.train_tokens = std::llround(use.share * static_cast<double>(run_.train_tokens));
    note(
        "packing: best-fit trains on {:.2f} % of the documents' tokens; the rest is "
        "cropped (measured over {} documents)",
        100 * use.share, use.documents);
    if (use.share < kLowPackingShare)
      note(
          "warning: best-fit packing drops {:.0f} % of the data, because documents are longer than "
          "rows: give --packing contiguous, or a larger --max-seq-len",
          100 * (1 - use.share));
  }

  void need_tokens(const data::TokenData* data, const char* what, const char* option) const {
    const std::int64_t row = run_.model.seq_len + 1;
    if (data != nullptr && data->size() < row)
      throw input_error(
          "{}: the {} is {} tokens long, shorter than a row of {}: give more data, or a "
          "smaller --max-seq-len",
          option, what, data->size(), row);
  }

  void devices() {
    TrainOptions& o = run_.options;
    run_.group = choose_devices(o.devices, run_.notes);
    if (const auto& seconds = o.run.stuck_after)
      run_.group.watch.stuck_after =
          Timeouts::Time(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
    run_.step.micro_steps = o.capture.micro_steps;
    if (o.capture.branches) run_.group.branches = static_cast<Branches>(*o.capture.branches);
    if (o.sharding.replicas == optim::ReplicaAt::kCommon && run_.group.plugin != nullptr)
      throw InputError("--replicas common: GPUs do not share memory: give own or auto");
  }

  // Chooses the attention kernels of GPUs. The host has a single implementation, with a fixed order
  // of sums.
  void attention() {
    kernels_ = run_.options.numbers.attention;
    if (run_.group.plugin == nullptr) {
      if (kernels_ != AttentionKernels::kAuto)
        throw input_error(
            "--attention {}: requires GPUs; the host has one implementation: give auto",
            name_of(kernels_));
      return;
    }
    const AttentionKernels asked = attention_kernels_of_environment();
    if (kernels_ == AttentionKernels::kAuto && asked != AttentionKernels::kAuto) {
      kernels_ = asked;
      note("attention: {} (MUO_ATTENTION)", name_of(asked));
    }
  }

  // Decides by the current rows of the batch: if they do not fit, fewer rows lead to the same
  // decision.
  void determinism() {
    const NumberOptions& o = run_.options.numbers;
    bool& deterministic = run_.model.attention.deterministic;
    const bool device = run_.group.plugin != nullptr;
    const auto size =
        model::attention_size(run_.model, run_.step.batch, run_.model.seq_len, 0, true);
    const bool any_order = device && attention_is_faster_in_any_order(size);
    const bool measured =
        device && attention_uses_warpgroups(size) && !o.tune && o.gemm_table.empty();
    if (device && !o.deterministic && !any_order && !measured)
      note("deterministic: on, at no cost for this run");
    deterministic = o.deterministic.value_or(!any_order && !measured);
    if (device && !deterministic)
      note("deterministic: off: {} differ in rounding",
           any_order ? "two runs of one command" : "runs on other GPUs");
  }

  // A resumed run keeps the choice, because the order of sums depends on it.
  void fused_products() {
    const std::optional<bool> fused = run_.options.numbers.fused_products;
    const std::string& described = run_.options.devices.described;
    const std::string why = run_.group.plugin == nullptr       ? "the host has none"
                            : run_.model.dtype != DType::kBF16 ? "they are bf16 only"
                            : described.empty()                ? fused_products_missing(0)
                                                : described_gpu(described).why_not_fused();
    if (fused.value_or(false) && !why.empty())
      note("fused products: off: {}: products sum in another order", why);
    run_.model.fused_products = fused.value_or(true) && why.empty();
  }

  // Off by default if the run is deterministic: results must not depend on which of two algorithms
  // happened to be a microsecond faster.
  void tuning() {
    const NumberOptions& o = run_.options.numbers;
    const bool asked = o.tune == Tune::kOnce || o.tune == Tune::kNow;
    if (asked && run_.group.plugin == nullptr)
      throw input_error("--tune {}: requires GPUs; the host has one implementation: give auto",
                        name_of(*o.tune));
    if (asked && !o.gemm_table.empty())
      throw input_error(
          "--tune {}: --gemm-table {} already determines the algorithms: give only one of the two "
          "options",
          name_of(*o.tune), o.gemm_table);
    if (run_.group.plugin == nullptr || !o.gemm_table.empty()) return;
    run_.tune = o.tune.value_or(run_.model.attention.deterministic ? Tune::kOff : Tune::kOnce);
  }

  void batch() {
    BatchOptions& o = run_.options.batch;
    std::int64_t& rows = run_.step.batch;
    const std::int64_t row = run_.model.seq_len * run_.world();  // tokens of one row per device
    const BatchOptions::Before& before = o.before;
    // A resumed run's automatic total and rows count as given if they fit.
    std::optional<BatchSizes> given = o.total_tokens;
    if (!given && before.total_tokens.value_or(1) % (row * o.device_rows.value_or(1)) == 0)
      given = before.total_tokens;
    const bool total_given = given.has_value();
    const BatchSizes sizes = given.value_or(o.target_tokens.value_or(run_.targets.batch_tokens));
    std::int64_t total = 0, divisor = 0;  // of the largest step; of all steps
    for (const BatchSizes::Stage& stage : sizes.stages) {
      total = std::max(total, stage.tokens);
      divisor = std::gcd(divisor, stage.tokens);
    }
    const auto require_multiples = [&](std::int64_t unit) {
      for (const BatchSizes::Stage& stage : sizes.stages)
        require_multiple(stage.tokens, unit);
    };
    if (!o.device_rows && before.world == run_.world() &&
        divisor % (row * before.device_rows.value_or(1)) == 0)
      o.device_rows = before.device_rows;
    const std::int64_t max_tokens = max_pass_tokens(run_.group);
    const std::int64_t max_rows = std::max<std::int64_t>(1, max_tokens / run_.model.seq_len);
    if (o.device_rows) {
      rows = *o.device_rows;
    } else {
      if (total_given) {
        require_multiples(row);
        rows = largest_divisor(divisor / row, max_rows);
      } else {
        // As many micro-steps as needed, all of equal size, so that the total is near the target.
        const std::int64_t in_all = std::max<std::int64_t>(1, (total + row / 2) / row);
        const std::int64_t micro_steps = (in_all + max_rows - 1) / max_rows;
        const std::int64_t each = row * micro_steps;
        rows = std::clamp<std::int64_t>((total + each / 2) / each, 1, max_rows);
      }
      note(
          "device-batch-size: {} rows of {} tokens per device and micro-step: a divisor of the "
          "step, at most {} tokens",
          rows, run_.model.seq_len, max_tokens);
    }
    model::check_pass(rows, run_.model.seq_len);
    const std::int64_t unit = row * rows;
    if (total_given) require_multiples(unit);
    run_.step.accumulation = std::max<std::int64_t>(1, (total + unit / 2) / unit);
    const std::int64_t tokens = run_.tokens_per_step();
    set_batches(run_, kUnbounded);
    if (!total_given)
      note("total-batch-size: {} tokens per step{}", tokens,
           tokens == total ? "" : fmt::format(" (the multiple of {} nearest to {})", unit, total));
  }

  void recompute() {
    const std::optional<model::Recomputed> what = run_.options.memory.recompute;
    if (what == model::Recomputed::kMlp) run_.step.recompute.mlps = run_.model.n_layer;
    if (what == model::Recomputed::kBlock) run_.step.recompute.blocks = run_.model.n_layer;
  }

  void sharding() {
    ShardingOptions& o = run_.options.sharding;
    if (o.replicas == optim::ReplicaAt::kSharded) {
      if (o.shard && o.shard != optim::Shard::kWeights)
        throw input_error(
            "--replicas sharded: with --shard {} weights are not sharded: give auto or own",
            name_of(*o.shard));
      o.shard = optim::Shard::kWeights;
    }
    if (o.shard == optim::Shard::kWeights) {
      if (o.replicas.value_or(optim::ReplicaAt::kSharded) != optim::ReplicaAt::kSharded)
        throw input_error(
            "--replicas {}: with --shard weights there are no full replicas: give auto",
            name_of(*o.replicas));
      o.replicas = optim::ReplicaAt::kSharded;
    } else if (run_.group.processes != nullptr) {
      if (o.replicas == optim::ReplicaAt::kCommon)
        throw InputError("--replicas common: works within one process only: give own or auto");
      o.replicas = optim::ReplicaAt::kEveryRank;
    }
    if (o.strategy == "auto")
      o.strategy = o.shard == optim::Shard::kWeights ? "parallel"
                   : o.shard == optim::Shard::kNone  ? "ddp"
                                                     : "balanced";
    if (o.strategy == kAllStrategies) return;
    const optim::Strategy& strategy = optim::strategy_of(o.strategy);
    const optim::Shard shard = shard_of(o);
    if (shard < strategy.least)
      throw input_error("--shard {}: --strategy {} always shards more: give {}, or --strategy ddp",
                        name_of(shard), o.strategy, name_of(strategy.least));
    if (shard > strategy.most)
      throw input_error(
          "--shard {}: --strategy {} cannot shard more than {}: give that, or another strategy",
          name_of(shard), o.strategy, name_of(strategy.most));
    o.shard = shard;
  }

  void require_multiple(std::int64_t total, std::int64_t unit) const {
    if (total % unit == 0) return;
    const std::int64_t below = total / unit * unit;
    const auto& rows = run_.options.batch.device_rows;
    throw input_error(
        "--total-batch-size {}: not a multiple of {} tokens ({}--max-seq-len {} x --devices {}): "
        "give {}{}",
        total, unit, rows ? fmt::format("--device-batch-size {} x ", *rows) : "",
        run_.model.seq_len, run_.world(), below > 0 ? fmt::format("{} or ", below) : "",
        below + unit);
  }

  void formats() {
    NumberOptions& o = run_.options.numbers;
    const optim::NumberFormats formats = run_.formats();
    if (formats.weight_wire == DType::kF32 && run_.model.dtype == DType::kBF16)
      throw InputError(
          "--weight-wire fp32: with --dtype bf16 all ranks read bf16 weights: give "
          "bf16");
    const bool bf16_gradients = formats.gradients == DType::kBF16;
    if (bf16_gradients && run_.model.dtype == DType::kF32)
      throw InputError(
          "--gradient-dtype bf16: gradients of fp32 weights are fp32: give --dtype bf16, or "
          "--gradient-dtype fp32");
    if (bf16_gradients && formats.gradient_wire == DType::kF32 && run_.world() > 1)
      throw InputError(
          "--gradient-wire fp32: gradients of --gradient-dtype bf16 are sent unconverted: give "
          "bf16");
    if (formats.split_masters && run_.model.dtype == DType::kF32)
      throw InputError(
          "--master-weights split: with --dtype fp32 the master is the weight itself: give --dtype "
          "bf16, or --master-weights fp32");
    if (o.adam_state == DType::kBF16 && o.embedding_state == DType::kBF16)
      throw InputError(
          "--embedding-state bf16: with --adam-state bf16, moments of embeddings are bf16 already, "
          "rounded stochastically: give only one of the two options");
  }

  void micro_steps() {
    const std::int64_t count = run_.step.accumulation;
    if (!run_.batches.empty()) {
      if (run_.reduces_every_micro_step())
        note(
            "total-batch-size: a capture for each batch, because with --shard {} every micro-step "
            "has collectives, which a loop cannot hold",
            name_of(shard_of(run_.options.sharding)));
      else if (!run_.step.micro_steps)
        run_.step.micro_steps = graphs::MicroSteps::kLoop;
    }
    if (run_.step.micro_steps == graphs::MicroSteps::kLoop && run_.reduces_every_micro_step())
      throw InputError(
          "--graph-micro-steps loop: every micro-step has collectives, which a loop cannot hold: "
          "give --shard optimizer, or --graph-micro-steps auto");
    if (count == 1 || !run_.needs_one_micro_step()) return;
    throw input_error(
        "--gradient-dtype bf16: {} micro-steps accumulate unsharded gradients, which need fp32: "
        "give {}"
        "--device-batch-size {}, or --gradient-dtype fp32",
        count, run_.world() > 1 ? "--shard gradients, " : "", run_.step.batch * count);
  }

  void paces() {
    const BatchOptions& o = run_.options.batch;
    const bool timed = o.time_budget || !o.positions_from.empty();
    if (timed && o.total_tokens)
      for (const BatchSizes::Stage& stage : o.total_tokens->stages)
        if (stage.share)
          throw input_error(
              "--total-batch-size {}@{}: a share of a number of steps that a run of a fixed time "
              "does not know: give a step",
              stage.tokens, *stage.share);
    if (o.positions_from.empty()) return;
    if (o.time_budget)
      throw input_error("--positions-from {}: it replaces --time-budget: give only one of them",
                        o.positions_from);
    run_.paces = read_paces(o.positions_from);
  }

  void profiled_steps() {
    const std::string& text = run_.options.run.profile_steps;
    if (text.empty()) return;
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto first = whole_number(std::string_view(text).substr(0, colon));
    const auto last =
        colon == text.size() ? first : whole_number(std::string_view(text).substr(colon + 1));
    run_.profile_begin = first.value_or(0);
    run_.profile_end = last.value_or(0);
    if (!first || run_.profile_begin >= run_.profile_end || run_.profile_end > run_.iterations())
      throw input_error("--profile-steps {}: give A:B with 0 <= A < B <= {}", text,
                        run_.iterations());
  }

  void evaluation() {
    EvaluationOptions& o = run_.options.evaluation;
    if (!o.every) {
      o.every = std::min(kDefaultEvalEvery, (run_.iterations() + 3) / 4);
      note("eval-every: {} steps", *o.every);
    }
    if (!o.sample_every) o.sample_every = can_sample() ? *o.every : -1;
    if (!run_.options.save.every) run_.options.save.every = -1;
    if (*o.sample_every > 0 && !can_sample())
      throw InputError(
          "--sample-every: the tokenizer of these shards is unknown: give their "
          "--tokenizer, or --sample-every -1");
    if (*o.every > 0) need_tokens(corpus_.val.get(), "held-out data", "--val-data");
    if (!o.tokens) {
      const std::int64_t most =
          corpus_.val == nullptr ? kDefaultEvalTokens : corpus_.val->size() - 1;
      o.tokens = std::clamp<std::int64_t>(most, 1, kDefaultEvalTokens);
      note("eval-tokens: {} held-out tokens per evaluation", *o.tokens);
    }
    run_.bytes_per_token = mean_bytes();
  }

  [[nodiscard]] bool can_sample() const {
    return corpus_.tokenizer != nullptr && find_bos(*corpus_.tokenizer);
  }

  // Mean bytes per token, estimated from the first million tokens: enough, because bits per byte of
  // the training loss are only displayed.
  [[nodiscard]] double mean_bytes() const {
    if (corpus_.train == nullptr || corpus_.token_bytes.empty()) return 0;
    constexpr std::int64_t kMaxTokens = 1 << 20;
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(std::min(kMaxTokens, corpus_.train->size())));
    corpus_.train->read(0, tokens);
    double bytes = 0;
    for (const std::int32_t token : tokens)
      bytes += corpus_.token_bytes.at(static_cast<std::size_t>(token));
    return bytes / static_cast<double>(tokens.size());
  }

  const data::Corpus& corpus_;
  RunConfig run_;
  AttentionKernels kernels_ = AttentionKernels::kAuto;
};

}  // namespace

RunConfig resolve(const TrainOptions& options, const data::Corpus& corpus) {
  return Resolver(options, corpus).run();
}

}  // namespace muo::trainer
