#include "trainer/run/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/terminal.h"
#include "kernels/muon.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kReferenceDepth = 12;
constexpr std::int64_t kReferenceWidth = 768;
constexpr double kMaxTokens = 1e18;

// The share of the weights with the highest rate that Muon's weight decay removes per step, at its
// peak.
double decay_per_step(const RunConfig& run, const HyperParameters& hyper) {
  double rate = 0;
  for (const ParamSpec& spec : model::gpt_parameters(run.model))
    if (spec.role == ParamRole::kMatrix)
      rate = std::max(rate, muon_rate(spec.shape[0], spec.shape[1]));
  return rate * hyper.matrix_lr * hyper.muon_weight_decay;
}

}  // namespace

ScalingTargets scaling_targets(const model::GptConfig& model, const ModelOptions& options,
                               double ratio) {
  model::GptConfig reference = model;
  reference.n_layer = kReferenceDepth;
  reference.n_embd = options.width_of(kReferenceDepth);
  reference.n_head = reference.n_kv_head = reference.n_embd / options.head_size;
  const auto tokens_of = [ratio](const model::GptConfig& config) {
    return ratio * static_cast<double>(model::count_parameters(config).scaling());
  };
  const double tokens = std::floor(tokens_of(model));
  if (tokens > kMaxTokens)
    throw input_error("--target-param-data-ratio {:g}: {:.3g} tokens are too many", ratio, tokens);
  ScalingTargets out;
  out.tokens = std::max<std::int64_t>(1, static_cast<std::int64_t>(tokens));
  out.reference_tokens = tokens_of(reference);
  const double batch = static_cast<double>(kReferenceBatch) *
                       std::pow(static_cast<double>(out.tokens) / out.reference_tokens, 0.383);
  out.batch_tokens = std::int64_t{1} << std::max(0L, std::lrint(std::log2(batch)));
  return out;
}

double batch_lr_scale(std::int64_t batch_tokens) {
  return std::sqrt(static_cast<double>(batch_tokens) / static_cast<double>(kReferenceBatch));
}

double width_lr_scale(std::int64_t n_embd) {
  return std::sqrt(static_cast<double>(kReferenceWidth) / static_cast<double>(n_embd));
}

double weight_decay_scale(const ScalingTargets& targets, std::int64_t batch_tokens) {
  return batch_lr_scale(batch_tokens) * targets.reference_tokens /
         static_cast<double>(targets.tokens);
}

std::vector<std::string> scaling_notes(const RunConfig& run) {
  const HyperParameters& hyper = run.hyper;
  const double trained = run.horizon_tokens();
  std::vector<std::string> rates;
  for (const optim::LearningRate& rate :
       optim::learning_rates(hyper, model::gpt_parameters(run.model)))
    rates.push_back(fmt::format("{} {:.4g}", rate.group, rate.lr));
  std::vector<std::string> out = {
      fmt::format("target: {} tokens for each of {} scaling parameters: {} tokens, {} per step",
                  run.options.batch.target_param_data_ratio,
                  count_text(static_cast<double>(run.scaling_parameters)),
                  count_text(static_cast<double>(run.targets.tokens)), run.targets.batch_tokens),
      !run.is_bounded()
          ? fmt::format("horizon: {} in steps of {} tokens",
                        to_text(run.options.batch.time_budget.value()), run.batch_text())
          : fmt::format("horizon: {} steps{} of {}: {} tokens{}", run.iterations(),
                        run.trained.steps == 0
                            ? ""
                            : fmt::format(", {} of them done with {} tokens, the others",
                                          run.trained.steps, run.trained.tokens),
                        run.batch_text(), count_text(trained),
                        run.train_tokens == 0
                            ? ""
                            : fmt::format(", {:.3g} times the training data",
                                          trained / static_cast<double>(run.train_tokens))),
      fmt::format("learning rates{}: {}", run.batches.empty() ? "" : " at the next step",
                  fmt::join(rates, ", ")),
      fmt::format("factors: rates x {:.4g} by batch, of embeddings and head x {:.4g} by width; "
                  "weight decay {:.4g} = {} x {:.4g}",
                  run.scales.batch_lr, run.scales.width_lr, hyper.muon_weight_decay,
                  run.options.optimizer.weight_decay, run.scales.weight_decay)};
  // Momentum averages gradients over 1 / (1 - momentum) steps or more: weights that decay faster
  // retain nothing of what they learn.
  const double decay = decay_per_step(run, hyper);
  if (decay >= 1 - hyper.muon_momentum_end)
    out.push_back(fmt::format(
        "warning: weight decay is dangerous: it removes {:.2g} of a weight per step, by nanochat's "
        "rule for a model this small: give --weight-decay-scale 1, or a smaller "
        "--weight-decay",
        decay));
  if (hyper.warmup_steps > run.iterations())
    out.push_back(fmt::format(
        "warning: the warm-up of {} steps is longer than the run of {}: learning rates reach "
        "{:.0f} % of their values: give a smaller --warmup-steps",
        hyper.warmup_steps, run.iterations(),
        100.0 * static_cast<double>(run.iterations()) / static_cast<double>(hyper.warmup_steps)));
  out.push_back(fmt::format(
      "compute: {} FLOPs per token ({:.1f} % attention; {} without masked pairs){}, without the "
      "optimizer",
      count_text(run.flops_per_token),
      100 * model::attention_flops_per_token(run.model) / run.flops_per_token,
      count_text(model::causal_flops_per_token(run.model)),
      run.is_bounded() ? fmt::format(", {:.3g} in total", run.flops_per_token * trained) : ""));
  return out;
}

}  // namespace muo::trainer
