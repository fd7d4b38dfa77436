#include "app/optimizer_options.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "optim/newton_schulz.h"
#include "optim/optimizer_version.h"

namespace muo {
namespace {

constexpr std::string_view kOptimizer = kOptimizerGroup;
constexpr std::string_view kGuard = kGuardGroup;

}  // namespace

std::vector<OptionRow> optimizer_rows(TrainOptions& o) {
  std::vector<std::string_view> versions;
  for (const OptimizerVersion& version : optimizer_versions())
    versions.push_back(version.name);
  std::vector<std::string_view> forms;
  std::string summaries;
  for (const NewtonSchulzForm& form : newton_schulz_forms()) {
    forms.push_back(form.name);
    summaries += fmt::format("\n {}: {}", form.name, form.summary);
  }
  return {
      {"matrix-lr", kOptimizer, "LR", "of Muon; this and the next three are scaled", &o.matrix_lr,
       0, 1e3},
      {"embedding-lr", kOptimizer, "LR", "of the embedding, AdamW", &o.embedding_lr, 0, 1e3},
      {"unembedding-lr", kOptimizer, "LR", "of the head, AdamW", &o.unembedding_lr, 0, 1e3},
      {"scalar-lr", kOptimizer, "LR", "of scalar weights, AdamW", &o.scalar_lr, 0, 1e3},
      {"weight-decay", kOptimizer, "X", "of Muon, at depth 12 and 524288 tokens per step; scaled",
       &o.weight_decay, 0, 1e3},
      {"batch-lr-scale", kOptimizer, "X", "of all rates; auto: sqrt(batch / 524288)",
       &o.batch_lr_scale, 0, 1e3},
      {"width-lr-scale", kOptimizer, "X", "of embeddings and head; auto: sqrt(768 / width)",
       &o.width_lr_scale, 0, 1e3},
      {"weight-decay-scale", kOptimizer, "X", "auto: sqrt(batch / 524288) x d12's tokens / own",
       &o.weight_decay_scale, 0, 1e6},
      {"warmup-steps", kOptimizer, "STEPS", "learning rates rise from 0", &o.warmup_steps, 0,
       kMostSteps},
      {"warmdown-ratio", kOptimizer, "PART", "last part of the run, where they fall",
       &o.warmdown_ratio, 0, 1},
      {"final-lr-frac", kOptimizer, "PART", "of the rates at the end", &o.final_lr_frac, 0, 1},
      {.name = "optimizer-spec",
       .group = kOptimizer,
       .value = "VERSION",
       .help = "of nanochat's Muon and AdamW: head, 2026-01, 2025-10",
       .field = &o.optimizer_spec,
       .choices = versions},
      {.name = "newton-schulz",
       .group = kOptimizer,
       .value = "FORM",
       .help = "how Muon's iteration is computed",
       .field = &o.newton_schulz,
       .choices = forms,
       .choices_help = summaries},
  };
}

std::vector<OptionRow> guard_rows(TrainOptions& o) {
  return {
      {"max-grad-norm", kGuard, "X", "gradients of a larger norm are scaled to it; 0: none are",
       &o.max_grad_norm, 0, 1e18},
      {"outlier-deviations", kGuard, "X",
       "a loss or norm so far above its mean is an outlier; 0: none", &o.outlier_deviations, 0,
       1e6},
      {.name = "on-outlier",
       .group = kGuard,
       .value = "log|skip",
       .help = "skip: its update is not committed",
       .field = &o.on_outlier,
       .choices = {"log", "skip"}},
      {"max-skipped", kGuard, "N", "more skipped updates than this end the run; -1: never",
       &o.max_skipped, 0, kMostSteps, true},
  };
}

}  // namespace muo
