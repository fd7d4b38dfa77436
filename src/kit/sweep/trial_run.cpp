#include "kit/sweep/trial_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "trainer/run/scaling.h"
#include "trainer/train/event_log.h"
#include "trainer/train/open_run.h"
#include "trainer/train/resume.h"

namespace muo::kit {
namespace {

// The metric by which trials are compared; empty if it is not finite.
std::optional<double> score_of(const trainer::EvalResult& evaluation) {
  const double score =
      evaluation.bpb >= 0 || std::isnan(evaluation.bpb) ? evaluation.bpb : evaluation.loss;
  return std::isfinite(score) ? std::optional(score) : std::nullopt;
}

}  // namespace

TrialRun::TrialRun(const Shared& shared, const Trial& trial, const CaptureGroup& group,
                   const Scheduler::Segment& segment)
    : segment_(segment), config_(*trial.config) {
  const trainer::RunDirectory directory{shared.directory.trial(segment.trial), {}};
  config_.options.run.out = directory.root.string();
  trainer::OpenedRun opened = trainer::open_trial(directory, config_, shared.init_from);
  const std::int64_t first_step = opened.first_step();
  const trainer::BudgetClock& clock = config_.trained.clock;
  const bool timed = config_.options.batch.time_budget.has_value();
  const double until_seconds = static_cast<double>(segment.until) / 1000;
  if (!timed && first_step > segment.until)
    throw trainer::input_error(
        "{}: the newest checkpoint has step {}, beyond the segment's end at step {}: remove it",
        directory.root.string(), first_step, segment.until);
  trainer::LoggerOptions logging =
      trainer::make_run_directory(config_, shared.corpus, opened, shared.peak_flops, [&] {
        if (shared.describe) shared.describe(directory, config_, group);
      });
  logging.terminal = -1;
  events_ = logging.events;
  files_.emplace(config_, std::move(opened), logging);
  for (const auto& notes : {config_.notes, files_->opened.notes, trainer::scaling_notes(config_)})
    for (const std::string& note : notes)
      files_->logger.note(note);
  if (first_step > 0) files_->logger.note(fmt::format("resuming at step {}", first_step));
  // A process that was killed after its last checkpoint may have logged the evaluation as well.
  if (timed ? clock.spent > 0.9 * until_seconds : first_step == segment.until)
    for (const trainer::LoggedEvaluation& logged : trainer::logged_evaluations(directory.metrics()))
      if (logged.step == first_step) known_ = logged.result;
  // NOLINTNEXTLINE(modernize-make-unique): TrainingRun is an aggregate
  run_.reset(new trainer::TrainingRun{.config = config_,
                                      .corpus = shared.corpus,
                                      .files = *files_,
                                      .signal = shared.stop,
                                      .until = !timed   ? segment.until
                                               : known_ ? first_step
                                                        : config_.iterations(),
                                      .until_seconds = until_seconds,
                                      .end_early = &end_early_,
                                      .evaluate_at_end = !known_,
                                      .last_save_in_background = group.run.staging_bytes > 0});
  if (shared.evaluated)
    run_->on_evaluation = [&shared, trial = segment.trial](std::int64_t step,
                                                           const trainer::EvalResult& result) {
      shared.evaluated(trial, step, result);
    };
  run_->steps_done = first_step;
  started_ = std::chrono::steady_clock::now();
}

void TrialRun::end() {
  ended_ = std::chrono::steady_clock::now();
  if (run_->decided.too_many_skipped) files_->logger.note(trainer::too_many_skipped_text(*run_));
  files_->logger.summary();
  files_->logger.close();
}

std::int64_t TrialRun::first_length() const {
  return config_.options.batch.time_budget ? std::llround(1000 * config_.trained.clock.spent)
                                           : files_->opened.first_step();
}
std::int64_t TrialRun::length() const {
  return config_.options.batch.time_budget ? first_length() + std::llround(1000 * run_->seconds)
                                           : run_->steps_done.load();
}

double TrialRun::seconds() const {
  return std::chrono::duration<double>(ended_ - started_).count();
}

TrialResult TrialRun::result() {
  TrialResult result = outcome();
  if (events_ && result.state != TrialState::kPaused) {
    try {
      events_->end(result.state == TrialState::kDone ? trainer::TrialEnd::kSuccess
                                                     : trainer::TrialEnd::kFailure);
    } catch (const Error& error) {  // an event file is optional: keep the result
      if (result.message.empty()) result.message = error.what();
    }
  }
  return result;
}

TrialResult TrialRun::outcome() {
  TrialResult out{.step = run_->steps_done, .seconds = seconds()};
  for (const trainer::SaveResult& save : files_->saver.take_results())
    if (!save.failure.empty()) {
      if (save.is_write_error) throw WriteError(save.failure);
      out.state = TrialState::kFailed;
      out.message = save.failure;
      return out;
    }
  if (run_->decided.too_many_skipped) {
    out.state = TrialState::kDiverged;
    out.message = fmt::format("{} of {} updates skipped", run_->skipped, out.step);
    return out;
  }
  const trainer::EvalResult evaluation = known_ ? *known_ : run_->last_evaluation.value();
  const std::optional<double> score = score_of(evaluation);
  for (const trainer::LoggedEvaluation& logged :
       trainer::logged_evaluations(files_->opened.directory.metrics()))
    if (const auto other = score_of(logged.result))
      out.best = std::min(out.best.value_or(*other), *other);
  if (!score) {
    out.state = TrialState::kDiverged;
    out.message = "the held-out loss is not finite";
    return out;
  }
  out.val_loss = evaluation.loss;
  if (evaluation.bpb >= 0) out.val_bpb = evaluation.bpb;
  out.state = segment_.until < length_of(config_) ? TrialState::kPaused : TrialState::kDone;
  if (run_->decided.ended_early) out.state = TrialState::kStopped;
  return out;
}

}  // namespace muo::kit
