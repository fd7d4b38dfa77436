#include "trainer/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "data/loader.h"
#include "optim/nonfinite_value.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/infer/sample_text.h"
#include "trainer/run/run_memory.h"
#include "trainer/train/event_log.h"
#include "trainer/train/profiled_steps.h"

namespace muo::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSampleTokens = 200;
constexpr std::size_t kShortSample = 20;  // bytes
constexpr std::uint64_t kMaxDraws = 4;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

class RankTrainer {
 public:
  RankTrainer(CapturedRank& captured, TrainingRun& run)
      : rank_(captured.rank),
        run_(run),
        config_(run.config),
        opened_(run.files.opened),
        captured_(captured),
        state_(captured.state),
        tokens_(run.config.token_count()),
        hyper_(run.config.hyper),
        rows_(data::make_training_rows(run.corpus, config_.model.seq_len, config_.options.seed)) {}

  void train() {
    step_ = restore_or_initialize();
    next_logged_ = step_;
    data::LoaderOptions loading = captured_.loading;
    loading.first_row = config_.rows_before(step_);
    loading.micro_steps = [this, first = step_](std::int64_t i) {
      return tokens_.of_step(first + i) / (config_.tokens_per_step() / config_.step.accumulation);
    };
    data::Loader loader(*rows_, loading, captured_.slots());
    const bool give_back = config_.group.plugin == nullptr && config_.options.memory.limit;
    rank_.barrier.arrive([give_back] { trim_heap(give_back); }, "the start of training");
    const RunInterruption interruption(rank_, run_);
    const std::int64_t end = std::min(config_.iterations(), run_.until);
    first_ = saved_ = step_;
    profile_.emplace(rank_, config_, state_.step, run_.timeline, first_, end);
    if (opened_.resume) newest_on_disk_ = step_;
    if (config_.hyper.pace.from >= 0 && is_logger())
      run_.files.logger.pace(config_.hyper.pace, run_.pacing.clock().spent);
    restart_clock();
    started_ = saved_at_ = last_logged_;
    interruptible([&] {
      for (; step_ < end && !stop_requested(); ++step_) {
        between_steps();
        one_step(loader);
      }
    });
    rank_.progress.begin_step(step_);
    finish_steps();
    if (profile_->is_open()) cross_profile(false);
    settle();
    save_last();
    // The save precedes the evaluation, which may take a long time, so that no training is lost if
    // the evaluation fails.
    if (run_.decided.stop != 0 || run_.decided.too_many_skipped) return;
    const EvaluationOptions& options = config_.options.evaluation;
    const bool evaluates = *options.every > 0 && (step_ > first_ || opened_.lost.evaluation);
    interruptible([&] {
      if (run_.evaluate_at_end.value_or(evaluates)) evaluate();
      if (*options.sample_every > 0 && (step_ > first_ || opened_.lost.sample)) sample();
    });
  }

 private:
  // While this object exists, TrainingRun::interrupt() can interrupt the ranks. It is not used with
  // several processes, where one process could commit the step that another abandons: they stop
  // between two steps.
  class RunInterruption {
   public:
    RunInterruption(const RankContext& rank, TrainingRun& run)
        : run_(rank.rank == 0 && rank.processes == nullptr ? &run : nullptr) {
      set(rank.interruption);
    }
    ~RunInterruption() { set(nullptr); }
    RunInterruption(const RunInterruption&) = delete;
    RunInterruption& operator=(const RunInterruption&) = delete;

   private:
    void set(Interruption* interruption) {
      if (run_ == nullptr) return;
      const std::lock_guard lock(run_->interrupting);
      run_->interruption = interruption;
    }
    TrainingRun* const run_;
  };

  [[nodiscard]] bool is_logger() const { return rank_.rank == 0; }

  class Busy {
   public:
    Busy(RankTrainer& trainer, const char* what)
        : logger_(trainer.is_logger() ? &trainer.run_.files.logger : nullptr) {
      if (logger_ != nullptr) logger_->busy(what);
    }
    ~Busy() {
      if (logger_ != nullptr) logger_->busy(nullptr);
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Logger* const logger_;
  };

  std::int64_t restore_or_initialize() {
    captured_.reset(hyper_);
    if (!opened_.resume) {
      if (opened_.init_from == nullptr)
        state_.initialize_weights(config_.options.seed);
      else
        load_weights(*opened_.init_from);
      return 0;
    }
    opened_.resume->load(rank_.compute, state_.update.state());
    state_.update.publish();
    rank_.wait(rank_.compute);
    const CheckpointInfo& info = opened_.resume->info();
    state_.set_counts({.step = info.step, .updates = info.updates, .statistics = info.statistics});
    return info.step;
  }

  // Loads the masters and publishes the replicas from them. The optimizer state stays zero.
  void load_weights(const Checkpoint& from) {
    std::vector<StateEntry> masters = state_.update.state();
    std::erase_if(masters, [](const StateEntry& e) { return checkpoint_file_of(e.name) != 0; });
    from.load(rank_.compute, masters);
    state_.update.publish();
    rank_.wait(rank_.compute);
  }

  // Returns the same value on all ranks: the last rank at the barrier decides, or, with several
  // processes, process 0.
  bool stop_requested() {
    rank_.progress.begin_step(step_);
    const auto agree = [this] {
      rank_.interruption->open();
      if (rank_.processes == nullptr)
        decide(run_.signal);
      else
        decide_together(*rank_.processes);
    };
    rank_.barrier.arrive(agree, "start of a step");
    report_saves();
    if (run_.decided.stop != 0) throw Interrupted();
    update_hyper();
    const bool stops =
        run_.decided.too_many_skipped || run_.decided.ended_early || run_.decided.pacing.is_over;
    if (stops) rank_.interruption->close();
    return stops;
  }
  // Sets the hyper-parameters of a new batch or pace.
  void update_hyper() {
    const bool same = step_ == first_ || tokens_.of_step(step_) == tokens_.of_step(step_ - 1);
    const std::optional<Pace>& pace = run_.decided.pacing.pace;
    if (same && !pace) return;
    const Pace now = pace.value_or(hyper_.pace);
    if (!same) hyper_ = hyper_parameters_at(config_, step_);
    hyper_.pace = now;
    state_.set_hyper(hyper_);
    if (pace && is_logger()) run_.files.logger.pace(*pace, run_.pacing.clock().spent);
  }
  void decide(int signal) {
    const SaveOptions& save = config_.options.save;
    run_.decided = {
        .stop = signal,
        .ended_early = run_.end_early != nullptr && *run_.end_early,
        .too_many_skipped = config_.options.guard.max_skipped >= 0 &&
                            run_.skipped > config_.options.guard.max_skipped,
        .pacing = run_.pacing.decide(step_, run_.until_seconds),
        .time_to_save = is_due(save, Clock::now() - saved_at_),
        .long_evaluation = save.before_eval >= 0 && evaluation_seconds() > save.before_eval,
        .last_is_slowest = profile_->follows_recorded(step_) && run_.timeline->last_is_slowest(),
        .ended_saves = run_.files.saver.take_results()};
  }
  // A signal to any process stops all processes.
  void decide_together(ProcessGroup& processes) {
    constexpr const char* kSite = "start of a step";
    const std::vector<std::string> signals =
        processes.gather(Channel::kRun, kSite, std::to_string(run_.signal));
    run_.decided = decisions_of(processes.broadcast(Channel::kRun, kSite, [&] {
      int signal = 0;
      for (const std::string& one : signals)
        if (signal == 0) signal = std::stoi(one);
      decide(signal);
      return decisions_text(run_.decided);
    }));
  }

  // Runs `work`. If a stop signal interrupts it, sets run_.decided.stop to that signal.
  template <class Work>
  void interruptible(const Work& work) {
    try {
      work();
    } catch (const Interrupted&) {
      rank_.interruption->recover([this] {
        if (run_.decided.stop == 0) run_.decided.stop = run_.signal;
      });
    }
  }
  // From here on, work may be interrupted until interruption->close().
  void open() {
    rank_.barrier.arrive(
        [this] {
          rank_.interruption->open();
          if (rank_.processes == nullptr) run_.decided.stop = run_.signal;
        },
        "the start of interruptible work");
    if (run_.decided.stop != 0) throw Interrupted();
  }

  void between_steps() {
    if (profile_->is_border(step_)) cross_profile(run_.decided.last_is_slowest);
    const TrainOptions& options = config_.options;
    const bool evaluates = is_due(options.evaluation.every, step_) &&
                           (step_ > first_ || step_ == 0 || opened_.lost.evaluation);
    const bool samples =
        is_due(options.evaluation.sample_every, step_) && (step_ > first_ || opened_.lost.sample);
    const bool saves =
        step_ > saved_ && (is_due(options.save.every, step_) || run_.decided.time_to_save ||
                           (evaluates && run_.decided.long_evaluation));
    if (!saves && !evaluates && !samples) return;
    rank_.interruption->close();
    settle();
    if (saves) save();
    if (evaluates) evaluate();
    if (samples) sample();
    open();
    restart_clock();
  }

  // Expected seconds of the next evaluation: the duration of the last one or, before the first, an
  // estimate from the steps so far.
  [[nodiscard]] double evaluation_seconds() const {
    if (evaluation_seconds_ > 0 || step_ == first_) return evaluation_seconds_;
    return expected_evaluation_seconds(captured_.evaluator.rows(),
                                       tokens_.between(first_, step_) / config_.model.seq_len,
                                       seconds(Clock::now() - started_));
  }

  void finish_steps() {
    rank_.wait(rank_.compute);
    log_finished();
  }

  // Waits until the steps so far are done, logs them, and updates every replica to their weights.
  void settle() {
    finish_steps();
    state_.step.flush();
    state_.finish_update();
    if (unreported_ >= 0) log_update();
  }

  void cross_profile(bool last_is_slowest) {
    finish_steps();
    const std::string note = profile_->cross(last_is_slowest);
    if (!note.empty()) run_.files.logger.note(note);
    restart_clock();
  }

  void one_step(data::Loader& loader) {
    if (is_logger() && next_logged_ == first_) run_.files.logger.busy("in the first step");
    profile_->begin_step(step_, run_.decided.last_is_slowest);
    rank_.progress.enter("the reading of a batch");
    const Clock::time_point asked = Clock::now();
    const data::Batch batch = [&loader] {
      const RankProgress::Scope reading(Activity::kFiles);
      const ProfileRange range(ProfileKind::kPhase, "batch");
      return loader.next();
    }();
    waited_ms_ += 1e3 * seconds(Clock::now() - asked);
    rank_.progress.enter("the step");
    state_.step.run(batch.inputs, batch.targets, *captured_.copied);
    // In stream order, this step's copies follow the previous step's replay, so this waits for that
    // replay and never for the one just launched.
    rank_.wait(*captured_.copied);
    loader.release();
    log_finished();
    if (!is_due(config_.options.run.verify_sync_every, step_ + 1)) return;
    rank_.progress.enter("the comparison of weights");
    state_.verify_sync();
  }

  // Logs every step whose metrics are available. A GPU runs behind, so there these are all but the
  // last.
  void log_finished() {
    if (!is_logger()) return;
    std::int64_t count = 0;
    while (state_.has_metrics(next_logged_ + count))
      ++count;
    if (count == 0) return;
    run_.files.logger.busy(nullptr);
    const Clock::time_point now = Clock::now();
    const double taken = seconds(now - last_logged_);
    run_.seconds += taken;
    run_.pacing.add(count, taken);
    const double step_ms = 1e3 * taken / static_cast<double>(count);
    const double waited_ms = std::exchange(waited_ms_, 0) / static_cast<double>(count);
    last_logged_ = now;
    for (; count > 0; --count, ++next_logged_) {
      if (unreported_ >= 0) log_update();
      const MetricsRecord record = state_.metrics(next_logged_);
      if (record.committed != 0) unreported_ = record.step;
      run_.files.logger.train(record, step_ms, bad_number(record), waited_ms);
      run_.skipped = record.step + 1 - record.updates;
    }
    run_.steps_done = next_logged_;
  }
  // Logs the update of the last committed step, whose squares the following step or settle() has
  // summed.
  void log_update() {
    const std::int64_t step = std::exchange(unreported_, -1);
    const bool each_matrix =
        config_.options.run.norms_every > 0 &&
        (step % config_.options.run.norms_every == 0 || step + 1 == config_.iterations());
    run_.files.logger.update(
        update_sizes(step, captured_.run.params, state_.update_squares(step), each_matrix));
  }
  [[nodiscard]] std::string bad_number(const MetricsRecord& record) const {
    if (record.bad_rank < 0) return {};
    return concat(optim::describe_value(
                      optim::locate_value(captured_.run.plan, record.bad_rank, record.bad_index),
                      captured_.run.params),
                  " on rank ", record.bad_rank);
  }
  void restart_clock() { last_logged_ = Clock::now(); }

  void evaluate() {
    rank_.progress.enter("the evaluation");
    const Busy busy(*this, "evaluating");
    const ProfileRange range(ProfileKind::kPhase, "evaluation");
    open();
    const Clock::time_point start = Clock::now();
    const EvalResult result = captured_.evaluator.run();
    evaluation_seconds_ = seconds(Clock::now() - start);
    if (!is_logger()) return;
    run_.files.logger.eval(step_, result.loss, result.bpb);
    run_.last_evaluation = result;
    if (run_.on_evaluation) run_.on_evaluation(step_, result);
  }

  void sample() {
    rank_.progress.enter("sampling");
    const Busy busy(*this, "sampling");
    const ProfileRange range(ProfileKind::kPhase, "sample");
    open();
    if (!rank_.compute.is_host()) rank_.interruption->close();
    if (is_logger() || state_.update.shards_weights()) {
      // Draws differ by seed, because a repetitive text shows nothing about the model. Neither does
      // a text whose document ends early, so such a text is drawn again.
      std::string text;
      for (std::uint64_t draw = 0; draw < kMaxDraws && text.size() < kShortSample; ++draw)
        text = sample_text(
            *state_.decoder, config_.model, *run_.corpus.tokenizer, "",
            {.max_tokens = kSampleTokens,
             .seed = config_.options.seed + static_cast<std::uint64_t>(step_) + (draw << 32U)});
      if (is_logger()) run_.files.logger.sample(step_, text);
    }
    rank_.barrier.arrive({}, "sample");
    rank_.interruption->close();
  }

  void save() {
    rank_.progress.enter("the saving of a checkpoint");
    const ProfileRange range(ProfileKind::kPhase, "checkpoint");
    const Clock::time_point start = Clock::now();
    const graphs::RunState::Counts counts = state_.counts();
    if (config_.options.batch.time_budget)  // rank 0 is not measuring while all ranks are here
      rank_.barrier.arrive([this] { run_.saved_clock = run_.pacing.clock(); }, "checkpoint");
    const CheckpointInfo info{.step = step_,
                              .updates = counts.updates,
                              .seed = config_.options.seed,
                              .rows = config_.rows_before(step_),
                              .tokens = tokens_.before(step_),
                              .statistics = counts.statistics,
                              .clock = run_.saved_clock,
                              .data = data_identity(run_.corpus),
                              .config = checkpoint_config(config_.model, config_.resolved()),
                              .version = config_.options.run.version};
    if (captured_.staging)
      run_.files.saver.start(rank_, info, state_.update.state(), *captured_.staging);
    else
      run_.files.saver.write(rank_, info, state_.update.state());
    saved_ = step_;
    saved_at_ = Clock::now();
    save_stall_ms_ = 1e3 * seconds(saved_at_ - start);
  }

  // Writes the last step to the disk before anything else is done.
  void save_last() {
    await_saves();
    if (newest_on_disk_ == step_) return;
    last_chance_ = true;
    save();
    if (!run_.last_save_in_background) await_saves();
  }

  void await_saves() {
    rank_.progress.enter("the saving of a checkpoint");
    run_.files.saver.wait();
    rank_.barrier.arrive([this] { run_.decided.ended_saves = ended_saves(); }, "last save");
    report_saves();
  }

  [[nodiscard]] std::vector<SaveResult> ended_saves() {
    if (rank_.processes == nullptr) return run_.files.saver.take_results();
    return unpack_results(rank_.processes->broadcast(Channel::kRun, "last save", [this] {
      return pack_results(run_.files.saver.take_results());
    }));
  }

  // Reports the finished saves, which are the same on all ranks now.
  void report_saves() {
    for (const SaveResult& save : run_.decided.ended_saves) {
      if (is_logger()) log_save(save);
      if (save.failure.empty()) {
        newest_on_disk_ = save.step;
        continue;
      }
      if (last_chance_ || config_.options.save.on_error == OnSaveError::kStop)
        throw_failure(rank_, save);
      saved_ = std::max(first_, newest_on_disk_);
    }
  }

  void log_save(const SaveResult& save) {
    Logger& logger = run_.files.logger;
    if (!save.failure.empty())
      return logger.note(fmt::format("step {}: warning: {}", step_, save.failure));
    const std::string waited =
        save.step == saved_ ? fmt::format("; training waited {:.0f} ms", save_stall_ms_) : "";
    logger.note(fmt::format("step {}: checkpoint saved: {:.1f} MB in {:.2f} s{}", save.step,
                            static_cast<double>(save.bytes) / 1e6, save.seconds, waited));
    for (const std::string& note : save.notes)
      logger.note(fmt::format("step {}: warning: {}", step_, note));
  }

  RankContext& rank_;
  TrainingRun& run_;
  const RunConfig& config_;
  const OpenedRun& opened_;
  CapturedRank& captured_;
  graphs::RunState& state_;
  const TokenCount tokens_;
  HyperParameters hyper_;  // of the current step
  std::unique_ptr<data::TrainingRows> rows_;
  std::optional<ProfiledSteps> profile_;
  std::int64_t step_ = 0;
  std::int64_t next_logged_ = 0;
  std::int64_t unreported_ = -1;      // committed step whose update is not logged yet; -1: none
  std::int64_t first_ = 0;            // first step that this process runs
  std::int64_t saved_ = 0;            // step of the last save: only later saves are due
  std::int64_t newest_on_disk_ = -1;  // step of the newest checkpoint on the disk; -1: none
  bool last_chance_ = false;          // the current save cannot be retried
  double waited_ms_ = 0;              // time spent waiting for batches in steps not logged yet
  double save_stall_ms_ = 0, evaluation_seconds_ = 0;
  Clock::time_point started_, saved_at_, last_logged_;
};

}  // namespace

void train_run(CapturedRank& captured, TrainingRun& run) { RankTrainer(captured, run).train(); }

void TrainingRun::interrupt() {
  const std::lock_guard lock(interrupting);
  if (interruption != nullptr) interruption->request();
}

double expected_evaluation_seconds(std::int64_t rows, std::int64_t trained_rows, double seconds) {
  return seconds / 3 * static_cast<double>(rows) / static_cast<double>(trained_rows);
}

std::string too_many_skipped_text(const TrainingRun& run) {
  return fmt::format(
      "{} updates were skipped by step {}, more than --max-skipped {} (see metrics.jsonl); "
      "the last checkpoint holds the weights of the last update that was committed; try a lower "
      "--matrix-lr, or --max-grad-norm",
      run.skipped, run.steps_done.load(), run.config.options.guard.max_skipped);
}

}  // namespace muo::trainer
