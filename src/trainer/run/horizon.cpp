#include "trainer/run/horizon.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "trainer/run/scaling.h"

namespace muo::trainer {
namespace {

// The largest number of steps, at least one, that train at most `tokens`; with the batches of that
// number of steps.
std::int64_t steps_of_tokens(RunConfig& run, double tokens) {
  const auto trains_at_most = [&](std::int64_t iterations) {
    set_batches(run, iterations);
    return run.token_count().between<double>(run.trained.steps, iterations) <=
           tokens - static_cast<double>(run.trained.tokens);
  };
  std::int64_t low = std::max<std::int64_t>(1, run.trained.steps), high = 2 * low;
  while (trains_at_most(high) && high < kUnbounded)
    high *= 2;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (trains_at_most(middle) ? low : high) = middle;
  }
  return low;
}

std::int64_t steps_of_flops(RunConfig& run, double target) {
  if (!run.batches.empty()) return steps_of_tokens(run, target / run.flops_per_token);
  const auto per_step = static_cast<double>(run.tokens_per_step());
  const double flops = run.flops_per_token * per_step;
  const TrainedSoFar& trained = run.trained;
  // The steps trained, less the steps that their tokens would make now: 0 if the batch is the same.
  const double shift =
      static_cast<double>(trained.steps) - static_cast<double>(trained.tokens) / per_step;
  const double steps = std::nearbyint(target / flops + shift);
  if (steps < 1 || steps > 1e12)
    throw input_error("--target-flops {}: gives {:.3g} steps; one step takes {:.3g} FLOPs", target,
                      steps, flops);
  return static_cast<std::int64_t>(steps);
}

std::int64_t steps_of_ratio(RunConfig& run) {
  if (!run.batches.empty()) return steps_of_tokens(run, static_cast<double>(run.targets.tokens));
  return std::max<std::int64_t>(
      1, run.trained.steps + (run.targets.tokens - run.trained.tokens) / run.tokens_per_step());
}

void check_batches(const RunConfig& run) {
  for (std::size_t i = 1; i < run.batches.size(); ++i)
    if (run.batches[i].from <= run.batches[i - 1].from)
      throw input_error("--total-batch-size: {} tokens begin at step {}, but {} before them at {}",
                        run.batches[i].tokens, run.batches[i].from, run.batches[i - 1].tokens,
                        run.batches[i - 1].from);
}

// The pace of the run's next step.
Pace first_pace(const RunConfig& run) {
  const std::int64_t step = run.trained.steps;
  if (!run.paces.empty()) {  // the step of a resumed run is not known at first
    const auto after = std::ranges::upper_bound(run.paces, step, {}, &Pace::from);
    return *std::prev(std::max(after, run.paces.begin() + 1));
  }
  if (!run.options.batch.time_budget) return {};
  if (step == 0) return {.from = 0};
  const BudgetClock& clock = run.trained.clock;
  const double budget = run.options.batch.time_budget->seconds;
  if (clock.budget <= 0)
    throw input_error(
        "--time-budget {}: the resumed run has trained {} steps without a budget, which is part of "
        "its schedules: give --num-iterations, or start a new run with --init-from",
        to_text(*run.options.batch.time_budget), step);
  if (clock.budget == budget) return clock.pace;
  return {.from = step,
          .position = std::min(1.0, clock.spent / budget),
          .per_step = clock.pace.per_step * clock.budget / budget};
}

optim::RateScales automatic_scales(const RunConfig& run, std::int64_t tokens) {
  return {.batch_lr = batch_lr_scale(tokens),
          .width_lr = width_lr_scale(run.model.n_embd),
          .weight_decay = weight_decay_scale(run.targets, tokens)};
}

}  // namespace

void set_batches(RunConfig& run, std::int64_t iterations) {
  run.batches.clear();
  run.step.smaller_steps.clear();
  const std::optional<BatchSizes>& sizes = run.options.batch.total_tokens;
  if (!sizes || sizes->stages.size() < 2) return;
  for (const BatchSizes::Stage& stage : sizes->stages) {
    run.batches.push_back(
        {stage.share ? std::llrint(*stage.share * static_cast<double>(iterations)) : stage.step,
         stage.tokens});
    run.step.smaller_steps.push_back(stage.tokens / run.model.seq_len / run.world());
  }
}

void set_iterations(RunConfig& run) {
  const BatchOptions& o = run.options.batch;
  std::int64_t& iterations = run.hyper.iterations;
  static constexpr std::string_view kNote = "num-iterations: ";
  std::erase_if(run.notes, [](const std::string& note) { return note.starts_with(kNote); });
  if (o.iterations) {
    iterations = *o.iterations;
  } else if (o.target_flops) {
    iterations = steps_of_flops(run, *o.target_flops);
    run.notes.push_back(
        fmt::format("{}{} (--target-flops {:.3g})", kNote, iterations, *o.target_flops));
  } else if (o.time_budget || !run.paces.empty()) {
    iterations = kUnbounded;
  } else {
    iterations = steps_of_ratio(run);
    run.notes.push_back(fmt::format("{}{} (--target-param-data-ratio {})", kNote, iterations,
                                    o.target_param_data_ratio));
  }
  if (!run.paces.empty() && run.paces.back().from < iterations) {
    iterations = run.paces.back().from;
    run.notes.push_back(
        fmt::format("{}{} (--positions-from {})", kNote, iterations, o.positions_from));
  }
  set_batches(run, iterations);
  check_batches(run);
}

void set_hyper_parameters(RunConfig& run) {
  const std::int64_t step = run.trained.steps;
  run.scales = run.options.optimizer.scales(automatic_scales(run, run.token_count().of_step(step)));
  run.hyper = hyper_parameters_at(run, step);
  run.hyper.pace = first_pace(run);
}

HyperParameters hyper_parameters_at(const RunConfig& run, std::int64_t step) {
  return optim::make_hyper_parameters(run.options.optimizer, run.options.guard, run.iterations(),
                                      automatic_scales(run, run.token_count().of_step(step)));
}

void continue_from(RunConfig& run, const TrainedSoFar& trained) {
  run.trained = trained;
  set_iterations(run);
  set_hyper_parameters(run);
}

}  // namespace muo::trainer
