#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "app/checkpoint/model_json.h"
#include "app/cli.h"
#include "app/report/run_facts.h"
#include "app/run/backend.h"
#include "app/run/device_rates.h"
#include "app/sweep/ask_tell.h"
#include "app/sweep/find_sweep.h"
#include "app/sweep/sweep_view.h"
#include "app/train/resume.h"
#include "app/train/stop_signal.h"
#include "base/shell_word.h"
#include "base/threads.h"

namespace muo::app {
namespace {

std::vector<std::string> names_of(std::span<const Axis> axes) {
  std::vector<std::string> out;
  for (const Axis& axis : axes)
    out.push_back("--" + axis.option);
  return out;
}

// How often a step is captured, and why.
std::string capture_note(const SweepPlan& plan) {
  if (plan.trials.empty()) return "captures: as many as the trials' options ask for";
  const auto devices =
      std::min<std::size_t>(static_cast<std::size_t>(plan.workers), plan.trials.size());
  const std::string each =
      plan.workers == 1 ? ""
                        : fmt::format(" on each of {} device{}", devices, devices == 1 ? "" : "s");
  if (plan.splitting.empty())
    return fmt::format("captures: one{}: what differs between trials is in device memory", each);
  return fmt::format(
      "captures: at most {}{}: {} part of the captured step", plan.groups.size(), each,
      plan.splitting.size() == 1 ? plan.splitting[0] + " is"
                                 : fmt::format("{} are", fmt::join(plan.splitting, ", ")));
}

std::vector<std::string> start_notes(const SweepOptions& options, const SweepPlan& plan,
                                     const data::Corpus& corpus) {
  const RunConfig& first = plan.groups.front().run.config;
  std::vector<std::string> notes = {corpus.description};
  if (options.train.run.sizes == CpuSizes::kQuick) notes.emplace_back(kQuickSizes);
  if (options.ask_tell)
    notes.push_back(
        fmt::format("sweep: trials come on standard input, {} at a time", plan.workers));
  else
    notes.push_back(fmt::format(
        "sweep: {} trial{}{}{}, {} at a time", plan.trials.size(),
        plan.trials.size() == 1 ? "" : "s", options.axes.empty() ? "" : " of ",
        fmt::join(names_of(options.axes), ", "),
        std::min<std::size_t>(static_cast<std::size_t>(plan.workers), plan.trials.size())));
  if (options.axes.empty() && !options.ask_tell)
    notes.emplace_back(
        "warning: nothing varies: give an option several values, as in --matrix-lr 0.1,0.2");
  notes.push_back(fmt::format("model: {}, {} parameters; {} steps of {} tokens",
                              name_of(first.options.model.preset), first.parameters,
                              first.iterations(), first.tokens_per_step()));
  notes.push_back(capture_note(plan));
  if (!plan.rungs.empty())
    notes.push_back(fmt::format(
        "halving{}: of {} trials that have come to step {} one goes on, to {} steps at most",
        options.halving.asynchronous ? " as they come" : "", options.halving.factor,
        fmt::join(plan.rungs.begin(), plan.rungs.end() - 1, ", "), plan.rungs.back()));
  if (!plan.warning.empty()) notes.push_back(plan.warning);
  const auto refused = std::ranges::count_if(
      plan.trials, [](const Trial& trial) { return !trial.config.has_value(); });
  if (refused > 0)
    notes.push_back(fmt::format("{} trial{} refused: sweep.csv tells why", refused,
                                refused == 1 ? " is" : "s are"));
  return notes;
}

// The options of a trial, evaluated as `train` would without being told.
TrainOptions to_repeat(const Trial& trial, const SweepOptions& sweep) {
  TrainOptions options = trial.options;
  const SweepOptions defaults;
  EvaluationOptions& evaluation = options.evaluation;
  if (sweep.train.evaluation.every == defaults.train.evaluation.every) evaluation.every.reset();
  if (sweep.train.evaluation.sample_every == defaults.train.evaluation.sample_every)
    evaluation.sample_every.reset();
  return options;
}

void note_best(const SweepOptions& options, const Trial& trial, std::string_view which,
               SweepView& view) {
  view.note(fmt::format("best: {}", which));
  for (const Axis& axis : options.axes)
    if (const std::string edge = edge_note(axis, value_in(trial.point, axis.option)); !edge.empty())
      view.note(edge);
  view.note("again: " + train_command(to_repeat(trial, options)));
}

// A sweep under way: its workers' threads, and this one, which writes down and shows what comes.
class SweepLoop {
 public:
  SweepLoop(const SweepPlan& plan, Scheduler& scheduler, SweepDirectory& directory, SweepRun& run,
            const std::atomic<int>& signal, SweepView& view, AskTell* outside)
      : plan_(plan),
        scheduler_(scheduler),
        directory_(directory),
        run_(run),
        signal_(signal),
        view_(view),
        outside_(outside) {}

  void run() {
    std::atomic<int> working = plan_.workers;
    {
      std::vector<std::jthread> workers;
      start(workers, working);
      while (working > 0) {
        look(/*at_end=*/false);
        std::this_thread::sleep_for(kPause);
      }
    }
    look(/*at_end=*/true);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kPause = std::chrono::milliseconds(5);
  static constexpr auto kBetweenViews = std::chrono::milliseconds(200);

  void start(std::vector<std::jthread>& workers, std::atomic<int>& working) {
    for (int i = 0; i < plan_.workers; ++i)
      try {
        workers.push_back(start_thread<std::jthread>([this, i, &working] {
          run_.work(i);
          --working;
        }));
      } catch (const ThreadRefused& error) {
        working -= plan_.workers - i;
        return run_.fail(error.what());
      }
  }

  void look(bool at_end) {
    try {
      look_on(at_end);
    } catch (const Error& error) {
      run_.fail(error.what());
    }
  }

  void look_on(bool at_end) {
    if (const int signal = signal_; signal != 0) {
      run_.stop();
      if (!std::exchange(stopping_, true))
        view_.note(stop_note(signal, "a checkpoint of each trial that trains"));
    }
    if (const std::string why = directory_.failure(); !why.empty()) run_.fail(why);
    run_.record_results();
    if (outside_ != nullptr) outside_->look(run_);
    if (!at_end && Clock::now() - shown_ < kBetweenViews) return;
    shown_ = Clock::now();
    const std::vector<TrialStatus> status = scheduler_.status();
    directory_.write_table(plan_, status);
    view_.show(status, run_.running(), scheduler_.steps_left());
  }

  const SweepPlan& plan_;
  Scheduler& scheduler_;
  SweepDirectory& directory_;
  SweepRun& run_;
  const std::atomic<int>& signal_;
  SweepView& view_;
  AskTell* const outside_;  // null: none gives trials
  Clock::time_point shown_;
  bool stopping_ = false;
};

}  // namespace

int run_command(const SweepOptions& options) {
  const data::Corpus corpus =
      waiting("reading the data", [&] { return data::open_corpus(options.train.data); });
  SweepPlanner planner(options, corpus,
                       options.ask_tell ? std::vector<Point>()
                                        : journal_points(find_sweep_directory(options.train.run)));
  const SweepPlan& plan = planner.plan();
  const RunConfig& first = plan.groups.front().run.config;
  // Standard output is the outside optimizer's, if there is one.
  warn_of_unused_gpus(options.train.devices.backend, first.group,
                      options.ask_tell ? stderr : stdout);
  SweepDirectory directory(options, plan, data_identity(corpus));
  Scheduler scheduler(
      plan,
      {.factor = options.halving.factor,
       .asynchronous = options.halving.asynchronous,
       .open = options.ask_tell},
      [&](std::size_t trial, std::size_t rung) { return directory.add_promotion(trial, rung); });
  const StopSignal signals;
  std::optional<AskTell> outside;
  if (options.ask_tell) {
    outside.emplace(STDIN_FILENO, STDOUT_FILENO, planner, scheduler, directory, signals.number());
    directory.replay(scheduler, [&](const nlohmann::json& line) { outside->replay(line); });
  } else {
    directory.replay(scheduler);
  }
  std::vector<std::string> notes = start_notes(options, plan, corpus);
  std::shared_ptr<const Checkpoint> init_from = open_init_from(first, corpus, notes);

  const DevicePeak peak = peak_of(first);
  std::atomic<int> stop = 0;
  TrialRun::Shared shared{.directory = directory,
                          .corpus = corpus,
                          .init_from = std::move(init_from),
                          .peak_flops = peak.flops,
                          .stop = stop};
  shared.describe = [&](const RunDirectory& run, const RunConfig& config,
                        const CaptureGroup& group) {
    PlanReport report{group.run};
    report.run.config = config;
    write_run_facts(run, report, peak, corpus);
  };
  if (outside) {
    shared.evaluated = [&](std::size_t trial, std::int64_t step, const EvalResult& result) {
      outside->evaluated(trial, step, result);
    };
    shared.ended = [&](std::size_t trial, const TrialResult& result) {
      outside->ended(trial, result);
    };
  }
  SweepRun run(plan, scheduler, directory, std::move(shared));
  SweepView view(plan, options.ask_tell ? STDERR_FILENO : STDOUT_FILENO);
  for (const std::string& note : notes)
    view.note(note);
  view.note(fmt::format("sweep directory: {}{}", directory.root().string(),
                        directory.is_resumed() ? ", which goes on" : ""));
  if (outside) outside->begin();
  SweepLoop(plan, scheduler, directory, run, signals.number(), view, outside ? &*outside : nullptr)
      .run();

  const std::vector<TrialStatus> status = scheduler.status();
  view.finish(status);
  if (const std::string failure = run.failure(); !failure.empty()) throw Error(failure);
  const std::string where = directory.root().string();
  if (const int signal = signals.number(); signal != 0) {
    view.note(
        fmt::format("stopped: {} sweep --resume {} goes on", program_word(), shell_word(where)));
    return 128 + signal;
  }
  if (status.empty()) {
    view.note("no trials were given");
    return 0;
  }
  const std::vector<PointScore> best = best_points(plan, status);
  if (best.empty())
    throw Error(fmt::format("no trial came to its end: {}/sweep.csv tells why", where));
  const std::size_t trial = best[0].best_trial;
  note_best(options, plan.trials[trial],
            fmt::format("trial {}, {}", trial, directory.trial(trial).string()), view);
  view.note(fmt::format("captures: {}; all trials: {}/sweep.csv", run.captures(), where));
  return 0;
}

}  // namespace muo::app
