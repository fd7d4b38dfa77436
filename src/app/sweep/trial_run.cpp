#include "app/sweep/trial_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "app/run/scaling.h"
#include "app/train/event_log.h"
#include "app/train/open_run.h"
#include "app/train/resume.h"

namespace muo::app {
namespace {

// What trials are compared by; empty: it is not finite.
std::optional<double> score_of(const EvalResult& evaluation) {
  const double score =
      evaluation.bpb >= 0 || std::isnan(evaluation.bpb) ? evaluation.bpb : evaluation.loss;
  return std::isfinite(score) ? std::optional(score) : std::nullopt;
}

}  // namespace

TrialRun::TrialRun(const Shared& shared, const Trial& trial, const CaptureGroup& group,
                   const Scheduler::Stretch& stretch)
    : stretch_(stretch), config_(*trial.config) {
  const RunDirectory directory{shared.directory.trial(stretch.trial), {}};
  config_.options.run.out = directory.root.string();
  OpenedRun opened = open_trial(directory, config_, shared.init_from);
  const std::int64_t first_step = opened.first_step();
  if (first_step > stretch.until)
    throw input_error(
        "{}: its newest checkpoint is of step {}, beyond {}, where this sweep has "
        "come to: remove it",
        directory.root.string(), first_step, stretch.until);
  LoggerOptions logging =
      make_run_directory(config_, shared.corpus, opened, shared.peak_flops, [&] {
        if (shared.describe) shared.describe(directory, config_, group);
      });
  logging.terminal = -1;
  events_ = logging.events;
  files_.emplace(config_, std::move(opened), logging);
  for (const auto& notes : {config_.notes, files_->opened.notes, scaling_notes(config_)})
    for (const std::string& note : notes)
      files_->logger.note(note);
  if (first_step > 0) files_->logger.note(fmt::format("going on at step {}", first_step));
  if (first_step == stretch.until)
    for (const LoggedEvaluation& logged : logged_evaluations(directory.metrics()))
      if (logged.step == first_step) known_ = logged.result;
  // NOLINTNEXTLINE(modernize-make-unique): of an aggregate
  run_.reset(new TrainingRun{.config = config_,
                             .corpus = shared.corpus,
                             .files = *files_,
                             .signal = shared.stop,
                             .until = stretch.until,
                             .end_early = &end_early_,
                             .evaluates_last = !known_,
                             .leaves_last_save = group.run.staging_bytes > 0});
  if (shared.evaluated)
    run_->evaluated = [&shared, trial = stretch.trial](std::int64_t step,
                                                       const EvalResult& result) {
      shared.evaluated(trial, step, result);
    };
  run_->steps_done = first_step;
  started_ = std::chrono::steady_clock::now();
}

void TrialRun::end() {
  ended_ = std::chrono::steady_clock::now();
  if (run_->decided.too_many_skipped) files_->logger.note(too_many_skipped_text(*run_));
  files_->logger.summary();
  files_->logger.close();
}

double TrialRun::seconds() const {
  return std::chrono::duration<double>(ended_ - started_).count();
}

TrialResult TrialRun::result() {
  TrialResult result = outcome();
  if (events_ && result.state != TrialState::kPaused) {
    try {
      events_->end(result.state == TrialState::kDone ? TrialEnd::kSuccess : TrialEnd::kFailure);
    } catch (const Error& error) {  // of a file that is for looking at
      if (result.message.empty()) result.message = error.what();
    }
  }
  return result;
}

TrialResult TrialRun::outcome() {
  TrialResult out{.step = run_->steps_done, .seconds = seconds()};
  for (const SaveResult& save : files_->saver.take_results())
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
  const EvalResult evaluation = known_ ? *known_ : run_->last_evaluation.value();
  const std::optional<double> score = score_of(evaluation);
  for (const LoggedEvaluation& logged : logged_evaluations(files_->opened.directory.metrics()))
    if (const auto other = score_of(logged.result))
      out.best = std::min(out.best.value_or(*other), *other);
  if (!score) {
    out.state = TrialState::kDiverged;
    out.message = "the held-out loss is not finite";
    return out;
  }
  out.val_loss = evaluation.loss;
  if (evaluation.bpb >= 0) out.val_bpb = evaluation.bpb;
  out.state = stretch_.until < config_.iterations() ? TrialState::kPaused : TrialState::kDone;
  if (run_->decided.ended_early) out.state = TrialState::kStopped;
  return out;
}

}  // namespace muo::app
