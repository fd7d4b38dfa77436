#include "app/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/backend.h"
#include "app/scaling.h"
#include "base/check.h"
#include "kernels/attention_method.h"

namespace muo {
namespace {

constexpr std::int64_t kTile = 128;              // width of a head where nothing else is asked
constexpr std::int64_t kDefaultEvalEvery = 250;  // nanochat's
constexpr std::int64_t kDefaultEvalTokens = 131072;

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::int64_t largest_divisor(std::int64_t value, std::int64_t most) {
  for (std::int64_t d = std::min(value, most); d > 1; --d)
    if (value % d == 0) return d;
  return 1;
}

// The head count nearest to width / 128 that gives whole, even head sizes.
std::int64_t choose_heads(std::int64_t width) {
  const auto wanted = static_cast<double>(width) / static_cast<double>(kTile);
  std::int64_t best = 1;
  for (std::int64_t heads = 1; heads <= width / 2; ++heads) {
    if (width % heads != 0 || (width / heads) % 2 != 0) continue;
    if (std::abs(static_cast<double>(heads) - wanted) <
        std::abs(static_cast<double>(best) - wanted))
      best = heads;
  }
  return best;
}

class Resolver {
 public:
  Resolver(const TrainOptions& options, const Corpus& corpus) : corpus_(corpus) {
    run_.options = options;
  }

  RunConfig run() {
    devices();
    attention();
    model();
    formats();
    batch();
    accumulation();
    iterations();
    profiled_steps();
    optimizer();
    evaluation();
    return std::move(run_);
  }

 private:
  template <class... Parts>
  void note(fmt::format_string<Parts...> format, Parts&&... parts) {
    run_.notes.push_back(fmt::format(format, std::forward<Parts>(parts)...));
  }

  void model() {
    TrainOptions& o = run_.options;
    run_.model = make_gpt_config(o, corpus_.vocab_size);
    check_config(run_.model);
    run_.model.head_chunk_bytes = head_chunk_bytes(run_.group);
    if (!o.n_layer && !o.n_embd && !o.n_head)
      note("model: depth {} is {} layers, width {}, {} heads", o.depth, run_.model.n_layer,
           run_.model.n_embd, run_.model.n_head);
    o.n_layer = run_.model.n_layer;
    o.n_embd = run_.model.n_embd;
    o.n_head = run_.model.n_head;
    o.n_kv_head = run_.model.n_kv_head;
    o.max_seq_len = run_.model.seq_len;
    o.value_embeddings = run_.model.value_embeddings;
    o.smear = run_.model.smear;
    o.backout = run_.model.backout;
    o.resid_lambdas = run_.model.resid_lambdas;
    o.x0_lambdas = run_.model.x0_lambdas;
    if (!o.qk_scale) o.qk_scale = std::stod(fmt::format("{}", run_.model.qk_scale));  // 1.2, short
    o.window_pattern = run_.model.window_pattern;
    o.dtype = run_.model.dtype;
    const ParameterCounts counts = count_parameters(run_.model);
    run_.parameters = counts.total();
    run_.scaling_parameters = counts.scaling();
    run_.flops_per_token = flops_per_token(run_.model);
    run_.targets = scaling_targets(run_.model, o.target_param_data_ratio);
    if (corpus_.train != nullptr) run_.train_tokens = corpus_.train->size();
    need_tokens(corpus_.train.get(), "training data", "--data");
  }

  void need_tokens(const TokenData* data, const char* what, const char* option) const {
    const std::int64_t row = run_.model.seq_len + 1;
    if (data != nullptr && data->size() < row)
      throw InputError(
          fmt::format("{}: the {} is {} tokens long, shorter than a row of {}: give more, or a "
                      "smaller --max-seq-len",
                      option, what, data->size(), row));
  }

  void devices() {
    TrainOptions& o = run_.options;
    run_.group = choose_devices(o, run_.notes);
    run_.group.branches = static_cast<Branches>(o.graph_branches);
    run_.world = run_.group.world;
    if (o.replicas == "common" && run_.group.plugin != nullptr)
      throw InputError("--replicas common: GPUs have memory of their own: give own or auto");
    if (!o.dtype) o.dtype = run_.group.plugin == nullptr ? DType::kF32 : DType::kBF16;
  }

  // Of devices; the host has one way, in which every sum has an order.
  void attention() {
    TrainOptions& o = run_.options;
    if (run_.group.plugin == nullptr) {
      if (o.attention != "auto")
        throw InputError(
            fmt::format("--attention {}: is for GPUs, the host has one way to compute: give auto",
                        o.attention));
      return;
    }
    const AttentionKernels asked = attention_kernels_of_environment();
    if (o.attention == "auto" && asked != AttentionKernels::kAuto) {
      o.attention = kAttentionKernels[static_cast<std::size_t>(asked)];
      note("attention: {} (MUO_ATTENTION)", o.attention);
    }
    if (!o.deterministic)
      note(
          "deterministic: off: where cuDNN computes gradients of attention, the same command "
          "twice gives losses and weights that differ in rounding");
  }

  void batch() {
    TrainOptions& o = run_.options;
    const std::int64_t row = run_.model.seq_len * run_.world;  // tokens, a row on every device
    const bool total_given = o.total_batch_size.has_value();
    const std::int64_t total =
        o.total_batch_size.value_or(o.target_batch_size.value_or(run_.targets.batch_tokens));
    const std::int64_t most_tokens = most_pass_tokens(run_.group);
    const std::int64_t most_rows = std::max<std::int64_t>(1, most_tokens / run_.model.seq_len);
    if (!o.device_batch_size) {
      run_.batch_is_automatic = true;
      if (total_given) {
        require_multiple(total, row);
        o.device_batch_size = largest_divisor(total / row, most_rows);
      } else {
        // As many micro-steps as it takes, all alike, so that the total is near to what it should
        // be.
        const std::int64_t rows = std::max<std::int64_t>(1, (total + row / 2) / row);
        const std::int64_t micro_steps = (rows + most_rows - 1) / most_rows;
        const std::int64_t each = row * micro_steps;
        o.device_batch_size = std::clamp<std::int64_t>((total + each / 2) / each, 1, most_rows);
      }
      note(
          "device-batch-size: {} rows of {} tokens per device and micro-step: what divides the "
          "step, at most {} tokens",
          *o.device_batch_size, run_.model.seq_len, most_tokens);
    }
    run_.batch = *o.device_batch_size;
    const std::int64_t unit = row * run_.batch;
    if (total_given) {
      require_multiple(total, unit);
      run_.total_batch_tokens = total;
    } else {
      run_.total_batch_tokens = std::max<std::int64_t>(1, (total + unit / 2) / unit) * unit;
      note("total-batch-size: {} tokens per step{}", run_.total_batch_tokens,
           run_.total_batch_tokens == total
               ? ""
               : fmt::format(" (the multiple of {} nearest to {})", unit, total));
    }
    o.total_batch_size = run_.total_batch_tokens;
    run_.accumulation = run_.total_batch_tokens / unit;
  }

  // A strategy that leaves every rank whole gradients has nothing to keep less of.
  void accumulation() const {
    if (run_.options.accumulate != "sharded") return;
    const std::vector<ParamSpec> params = gpt_parameters(run_.model);
    for (const Bucket& bucket : make_sharding_plan(run_, params).buckets)
      if (bucket.rule == UpdateRule::kMuon && bucket.reduction == Reduction::kAllReduce)
        throw InputError(fmt::format(
            "--accumulate sharded: with --strategy {} every device holds whole gradients: give "
            "local, or another strategy",
            run_.options.strategy));
  }

  void require_multiple(std::int64_t total, std::int64_t unit) const {
    if (total % unit == 0) return;
    const std::int64_t below = total / unit * unit;
    const auto& rows = run_.options.device_batch_size;
    throw InputError(fmt::format(
        "--total-batch-size {}: not a multiple of {} tokens ({}--max-seq-len {} x --devices {}): "
        "give {}{}",
        total, unit, rows ? fmt::format("--device-batch-size {} x ", *rows) : "",
        run_.model.seq_len, run_.world, below > 0 ? fmt::format("{} or ", below) : "",
        below + unit));
  }

  void formats() {
    TrainOptions& o = run_.options;
    o.gradient_wire = o.gradient_wire.value_or(DType::kF32);
    o.weight_wire = o.weight_wire.value_or(run_.model.dtype);
    if (*o.weight_wire == DType::kF32 && run_.model.dtype == DType::kBF16)
      throw InputError(
          "--weight-wire fp32: with --dtype bf16 weights are bf16 wherever they are read: give "
          "bf16");
    if (*o.gradient_wire == DType::kBF16 && run_.group.communicator == CommunicatorKind::kNccl)
      throw InputError(
          "--gradient-wire bf16: NCCL would round at every hop: give fp32, or --comm peer, which "
          "sums in fp32");
    run_.formats = {.gradient_wire = *o.gradient_wire,
                    .weight_wire = *o.weight_wire,
                    .embedding_state = o.embedding_state};
  }

  // nanochat's order: explicit steps, then compute, then tokens per parameter.
  void iterations() {
    TrainOptions& o = run_.options;
    const std::int64_t batch = run_.total_batch_tokens;
    if (!o.num_iterations && o.target_flops) {
      const double steps =
          std::nearbyint(*o.target_flops / (run_.flops_per_token * static_cast<double>(batch)));
      if (steps < 1 || steps > 1e12)
        throw InputError(
            fmt::format("--target-flops {}: makes {:.3g} steps; one step takes {:.3g} FLOPs",
                        *o.target_flops, steps, run_.flops_per_token * static_cast<double>(batch)));
      o.num_iterations = static_cast<std::int64_t>(steps);
      note("num-iterations: {} (--target-flops {:.3g})", *o.num_iterations, *o.target_flops);
    } else if (!o.num_iterations) {
      o.num_iterations = std::max<std::int64_t>(1, run_.targets.tokens / batch);
      note("num-iterations: {} (--target-param-data-ratio {})", *o.num_iterations,
           o.target_param_data_ratio);
    }
    run_.iterations = *o.num_iterations;
  }

  void profiled_steps() {
    const std::string& text = run_.options.profile_steps;
    if (text.empty()) return;
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, run_.profile_begin);
    const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
    const auto last = colon ? std::from_chars(first.ptr + 1, end, run_.profile_end) : first;
    if (!colon || last.ec != std::errc() || last.ptr != end || run_.profile_begin < 0 ||
        run_.profile_begin >= run_.profile_end || run_.profile_end > run_.iterations)
      throw InputError(fmt::format(
          "--profile-steps {}: give A:B, the first step and the one after the last, from 0 to {}",
          text, run_.iterations));
  }

  void optimizer() {
    const TrainOptions& o = run_.options;
    const std::int64_t batch = run_.total_batch_tokens;
    run_.optimizer = {.iterations = run_.iterations,
                      .batch_scale = o.batch_lr_scale.value_or(batch_lr_scale(batch)),
                      .width_scale = o.width_lr_scale.value_or(width_lr_scale(run_.model.n_embd)),
                      .matrix_lr = o.matrix_lr,
                      .embedding_lr = o.embedding_lr,
                      .unembedding_lr = o.unembedding_lr,
                      .scalar_lr = o.scalar_lr,
                      .weight_decay = o.weight_decay,
                      .weight_decay_scale =
                          o.weight_decay_scale.value_or(weight_decay_scale(run_.targets, batch)),
                      .warmup_steps = o.warmup_steps,
                      .warmdown_ratio = o.warmdown_ratio,
                      .final_lr_frac = o.final_lr_frac,
                      .max_grad_norm = o.max_grad_norm,
                      .outlier_deviations = o.outlier_deviations,
                      .skip_outliers = o.on_outlier == "skip",
                      .version = &optimizer_version(o.optimizer_spec)};
  }

  void evaluation() {
    TrainOptions& o = run_.options;
    const auto every = [](std::int64_t steps) { return std::max<std::int64_t>(0, steps); };
    if (!o.eval_every) {
      o.eval_every = std::min(kDefaultEvalEvery, (run_.iterations + 3) / 4);
      note("eval-every: {} steps", *o.eval_every);
    }
    if (!o.sample_every) o.sample_every = corpus_.is_text ? *o.eval_every : -1;
    if (!o.save_every) o.save_every = -1;
    if (*o.sample_every > 0 && !corpus_.is_text)
      throw InputError(
          "--sample-every: token shards have no tokenizer to print samples with: "
          "give -1");
    run_.eval_every = every(*o.eval_every);
    run_.save_every = every(*o.save_every);
    run_.sample_every = every(*o.sample_every);
    run_.verify_sync_every = every(o.verify_sync_every);
    if (run_.eval_every > 0) need_tokens(corpus_.val.get(), "held-out data", "--val-data");
    if (!o.eval_tokens) {
      o.eval_tokens = kDefaultEvalTokens;
      if (corpus_.val != nullptr)
        o.eval_tokens = std::clamp<std::int64_t>(corpus_.val->size() - 1, 1, kDefaultEvalTokens);
      note("eval-tokens: {} of the held-out data per evaluation", *o.eval_tokens);
    }
    run_.eval_rows = (*o.eval_tokens + run_.model.seq_len - 1) / run_.model.seq_len;
    run_.bytes_per_token = mean_bytes();
  }

  // Of the first million tokens: bits per byte of the training loss are for the eye only.
  [[nodiscard]] double mean_bytes() const {
    if (corpus_.train == nullptr || corpus_.token_bytes.empty()) return 0;
    constexpr std::int64_t kMostTokens = 1 << 20;
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(std::min(kMostTokens, corpus_.train->size())));
    corpus_.train->read(0, tokens);
    double bytes = 0;
    for (const std::int32_t token : tokens)
      bytes += corpus_.token_bytes.at(static_cast<std::size_t>(token));
    return bytes / static_cast<double>(tokens.size());
  }

  const Corpus& corpus_;
  RunConfig run_;
};

}  // namespace

RunConfig resolve(const TrainOptions& options, const Corpus& corpus) {
  return Resolver(options, corpus).run();
}

ShardingPlan make_sharding_plan(const RunConfig& config, std::span<const ParamSpec> params) {
  const bool pipelined = config.options.gather == "pipelined";
  ShardingPlan plan =
      make_sharding_plan(params, config.world, config.options.strategy, config.formats,
                         pipelined ? Gather::kPipelined : Gather::kSimple,
                         newton_schulz_form(config.options.newton_schulz));
  plan.version = config.optimizer.version;
  if (config.world > 1 && config.group.plugin == nullptr && config.options.replicas != "own")
    share_replicas(plan);
  if (config.options.accumulate == "sharded") {
    plan.accumulate = Accumulate::kSharded;
    plan.micro_steps = config.accumulation;
    assign_tags(plan);
  }
  return plan;
}

GptConfig make_gpt_config(const TrainOptions& o, std::int64_t vocab_size) {
  GptConfig model;
  model.vocab_size = vocab_size;
  model.n_layer = o.n_layer.value_or(o.depth);
  model.n_embd = o.n_embd.value_or(round_up(o.depth * 64, kTile));
  model.n_head = o.n_head.value_or(choose_heads(model.n_embd));
  model.n_kv_head = o.n_kv_head.value_or(model.n_head);
  const bool nanochat = o.model == "nanochat";
  if (nanochat) set_nanochat_extras(model);
  model.seq_len = o.max_seq_len.value_or(nanochat ? 2048 : 256);
  model.window_pattern = o.window_pattern.value_or(model.window_pattern);
  if (o.qk_scale) model.qk_scale = static_cast<float>(*o.qk_scale);
  model.softcap = static_cast<float>(o.softcap);
  model.value_embeddings = o.value_embeddings.value_or(model.value_embeddings);
  model.smear = o.smear.value_or(model.smear);
  model.backout = o.backout.value_or(model.backout);
  model.resid_lambdas = o.resid_lambdas.value_or(model.resid_lambdas);
  model.x0_lambdas = o.x0_lambdas.value_or(model.x0_lambdas);
  model.dtype = o.dtype.value_or(DType::kF32);
  model.attention = {.kernels = attention_kernels(o.attention, "--attention"),
                     .deterministic = o.deterministic};
  return model;
}

Corpus vocabulary_only(const TrainOptions& options) {
  Corpus corpus;
  corpus.vocab_size = options.vocab_size > 0 ? options.vocab_size : kByteVocab;
  return corpus;
}

DataOptions data_options(const TrainOptions& o) {
  DataOptions data;
  data.paths.assign(o.data.begin(), o.data.end());
  data.val_paths.assign(o.val_data.begin(), o.val_data.end());
  data.max_bytes = o.data_max_bytes;
  data.vocab_size = o.vocab_size;
  return data;
}

}  // namespace muo
