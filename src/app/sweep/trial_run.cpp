#include "app/sweep/trial_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "app/run/scaling.h"
#include "app/train/event_log.h"
#include "app/train/open_run.h"
#include "app/train/resume.h"

namespace muo {
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
    : stretch_(stretch),
      config_(*trial.config),
      directory_{shared.directory.trial(stretch.trial), {}},
      lock_(lock_run_directory(directory_)) {
  config_.options.run.out = directory_.root.string();
  std::vector<std::string> notes = config_.notes;
  std::error_code error;
  if (std::filesystem::exists(directory_.checkpoints(), error))
    resume_ = newest_checkpoint(directory_.root, notes);
  first_step_ = resume_ ? resume_->info().step : 0;
  if (first_step_ > stretch.until)
    throw input_error(
        "{}: its newest checkpoint is of step {}, beyond {}, where this sweep has "
        "come to: remove it",
        directory_.root.string(), first_step_, stretch.until);
  create_run_directory(directory_, config_.options, lock_);
  if (shared.describe) shared.describe(directory_, config_, group);
  LoggerOptions logging = open_log(config_, directory_, first_step_, shared.peak_flops);
  logging.terminal = -1;
  events_ = logging.events;
  logger_.emplace(logging);
  for (const std::string& note : notes)
    logger_->note(note);
  for (const std::string& note : scaling_notes(config_))
    logger_->note(note);
  if (resume_) logger_->note(fmt::format("going on at step {}", first_step_));

  saver_.emplace(directory_.root, config_.world(), keep_checkpoints(config_.options.save));
  log_before_saves(*saver_, *logger_);
  if (resume_) saver_->mark_verified(first_step_);
  if (first_step_ == stretch.until)
    for (const LoggedEvaluation& logged : logged_evaluations(directory_.metrics()))
      if (logged.step == first_step_) known_ = logged.result;
  // NOLINTNEXTLINE(modernize-make-unique): of an aggregate
  run_.reset(
      new TrainingRun{.config = config_,
                      .corpus = shared.corpus,
                      .saver = *saver_,
                      .resume = resume_ ? &*resume_ : nullptr,
                      .init_from = resume_ ? nullptr : shared.init_from,
                      .lost = resume_ ? lost_work(directory_, config_, *resume_) : LostWork{},
                      .logger = *logger_,
                      .signal = shared.stop,
                      .until = stretch.until,
                      .end_early = &end_early_,
                      .evaluates_last = !known_,
                      .leaves_last_save = group.staging_bytes > 0});
  if (shared.evaluated)
    run_->evaluated = [&shared, trial = stretch.trial](std::int64_t step,
                                                       const EvalResult& result) {
      shared.evaluated(trial, step, result);
    };
  run_->steps_done = first_step_;
  started_ = std::chrono::steady_clock::now();
}

void TrialRun::end() {
  ended_ = std::chrono::steady_clock::now();
  if (run_->decided.too_many_skipped) logger_->note(too_many_skipped_text(*run_));
  logger_->summary();
  logger_->close();
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
  for (const SaveResult& save : saver_->take_results())
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
  for (const LoggedEvaluation& logged : logged_evaluations(directory_.metrics()))
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

}  // namespace muo
