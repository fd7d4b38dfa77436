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

#include "base/durable_files.h"
#include "base/shell_word.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "kit/report/run_facts.h"
#include "kit/sweep/ask_tell.h"
#include "kit/sweep/finals.h"
#include "kit/sweep/find_sweep.h"
#include "kit/sweep/sweep_view.h"
#include "kit/sweep/transfer.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/run/backend.h"
#include "trainer/run/device_rates.h"
#include "trainer/train/resume.h"
#include "trainer/train/stop_signal.h"

namespace muo::cli {
namespace {

std::vector<std::string> names_of(std::span<const trainer::Axis> axes) {
  std::vector<std::string> out;
  for (const trainer::Axis& axis : axes)
    out.push_back("--" + axis.option);
  return out;
}

// The number of captures of a step, and the reason for it.
std::string capture_note(const kit::SweepPlan& plan) {
  if (plan.trials.empty()) return "captures: as many as the trials' options need";
  const auto devices =
      std::min<std::size_t>(static_cast<std::size_t>(plan.workers), plan.trials.size());
  const std::string each =
      plan.workers == 1 ? ""
                        : fmt::format(" on each of {} device{}", devices, devices == 1 ? "" : "s");
  if (plan.splitting.empty())
    return fmt::format(
        "captures: one{}: the options that differ between trials are in device memory", each);
  return fmt::format(
      "captures: at most {}{}, because {} part of the captured step", plan.groups.size(), each,
      plan.splitting.size() == 1 ? plan.splitting[0] + " is"
                                 : fmt::format("{} are", fmt::join(plan.splitting, ", ")));
}

std::vector<std::string> start_notes(const trainer::SweepOptions& options,
                                     const kit::SweepPlan& plan, const data::Corpus& corpus) {
  const trainer::RunConfig& first = plan.groups.front().run.config;
  std::vector<std::string> notes = {corpus.description};
  if (options.train.run.sizes == trainer::CpuSizes::kQuick)
    notes.emplace_back(trainer::kQuickSizes);
  if (options.ask_tell)
    notes.push_back(
        fmt::format("sweep: trials are read from standard input, {} at a time", plan.workers));
  else
    notes.push_back(fmt::format(
        "sweep: {} trial{}{}{}, {} at a time", plan.trials.size(),
        plan.trials.size() == 1 ? "" : "s", options.axes.empty() ? "" : " of ",
        fmt::join(names_of(options.axes), ", "),
        std::min<std::size_t>(static_cast<std::size_t>(plan.workers), plan.trials.size())));
  if (options.axes.empty() && !options.ask_tell)
    notes.emplace_back(
        "warning: no option varies: give one several values, as in --matrix-lr 0.1,0.2");
  notes.push_back(fmt::format("model: {}, {} parameters; {} of {} tokens",
                              name_of(first.options.model.preset), first.parameters,
                              plan.is_timed
                                  ? kit::length_text(plan, kit::length_of(first)) + " in steps"
                                  : fmt::format("{} steps", first.iterations()),
                              first.tokens_per_step()));
  notes.push_back(capture_note(plan));
  if (!plan.rungs.empty()) {
    std::vector<std::string> rungs;
    for (const std::int64_t rung : plan.rungs)
      rungs.push_back(kit::length_text(plan, rung));
    notes.push_back(fmt::format("halving{}: {} {} the best 1 of {} continues, up to {}{}",
                                options.halving.asynchronous ? ", asynchronous" : "",
                                plan.is_timed       ? "after"
                                : rungs.size() == 2 ? "at step"
                                                    : "at steps",
                                fmt::join(rungs.begin(), rungs.end() - 1, ", "),
                                options.halving.factor, rungs.back(),
                                plan.is_timed ? "" : " steps"));
  }
  if (!plan.warning.empty()) notes.push_back(plan.warning);
  const auto refused = std::ranges::count_if(
      plan.trials, [](const kit::Trial& trial) { return !trial.config.has_value(); });
  if (refused > 0)
    notes.push_back(fmt::format("{} trial{} refused: sweep.csv has the reasons", refused,
                                refused == 1 ? " is" : "s are"));
  return notes;
}

// The options of a trial, with the defaults of `train` for evaluation where the sweep's apply.
trainer::TrainOptions options_to_repeat(const kit::Trial& trial,
                                        const trainer::SweepOptions& sweep) {
  trainer::TrainOptions options = trial.options;
  const trainer::SweepOptions defaults;
  trainer::EvaluationOptions& evaluation = options.evaluation;
  if (sweep.train.evaluation.every == defaults.train.evaluation.every) evaluation.every.reset();
  if (sweep.train.evaluation.sample_every == defaults.train.evaluation.sample_every)
    evaluation.sample_every.reset();
  return options;
}

void note_best(const trainer::SweepOptions& options, const kit::Trial& trial,
               std::string_view which, kit::SweepView& view) {
  view.note(fmt::format("best: {}", which));
  for (const trainer::Axis& axis : options.axes)
    if (const std::string edge = kit::edge_note(axis, kit::value_in(trial.point, axis.option));
        !edge.empty() && !(options.transfer_to && axis.option == "depth"))
      view.note(edge);
  view.note("to repeat it: " + kit::train_command(options_to_repeat(trial, options)));
}

// A running sweep: the worker threads, and this thread, which records and shows their results.
class SweepLoop {
 public:
  SweepLoop(const kit::SweepPlan& plan, kit::Scheduler& scheduler, kit::SweepDirectory& directory,
            kit::SweepRun& run, const std::atomic<int>& signal, kit::SweepView& view,
            kit::AskTell* outside, kit::Finals* finals)
      : plan_(plan),
        scheduler_(scheduler),
        directory_(directory),
        run_(run),
        signal_(signal),
        view_(view),
        outside_(outside),
        finals_(finals) {}

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
        view_.note(trainer::stop_note(signal, "a checkpoint of each trial that trains"));
    }
    if (const std::string why = directory_.failure(); !why.empty()) run_.fail(why);
    run_.record_results();
    if (outside_ != nullptr) outside_->exchange(run_);
    if (!at_end && Clock::now() - shown_ < kBetweenViews) return;
    shown_ = Clock::now();
    const std::vector<kit::TrialStatus> status = scheduler_.status();
    directory_.write_table(plan_, status);
    view_.show(status, run_.running(), scheduler_.length_left());
    if (finals_ != nullptr)
      if (const std::string news = finals_->advance(status); !news.empty()) view_.note(news);
  }

  const kit::SweepPlan& plan_;
  kit::Scheduler& scheduler_;
  kit::SweepDirectory& directory_;
  kit::SweepRun& run_;
  const std::atomic<int>& signal_;
  kit::SweepView& view_;
  kit::AskTell* const outside_;  // null without --ask-tell
  kit::Finals* const finals_;    // null without --finalists
  Clock::time_point shown_;
  bool stopping_ = false;
};

}  // namespace

int run_command(const trainer::SweepOptions& options) {
  kit::check_transfer(options);
  const data::Corpus corpus =
      waiting("reading the data", [&] { return data::open_corpus(options.train.data); });
  kit::SweepPlanner planner(
      options, corpus,
      options.ask_tell ? std::vector<kit::Point>()
                       : kit::journal_points(kit::find_sweep_directory(options.train.run)));
  const kit::SweepPlan& plan = planner.plan();
  const trainer::RunConfig& first = plan.groups.front().run.config;
  // With --ask-tell, standard output belongs to the external optimizer.
  trainer::warn_of_unused_gpus(options.train.devices.backend, first.group,
                               options.ask_tell ? stderr : stdout);
  kit::SweepDirectory directory(options, plan, trainer::data_identity(corpus));
  kit::Scheduler scheduler(
      plan,
      {.factor = options.halving.factor,
       .asynchronous = options.halving.asynchronous,
       .open = options.ask_tell || options.finalists > 1},
      [&](std::size_t trial, std::size_t rung) { return directory.add_promotion(trial, rung); });
  const trainer::StopSignal signals;
  std::optional<kit::AskTell> outside;
  std::optional<kit::Finals> finals;
  if (options.ask_tell) {
    outside.emplace(STDIN_FILENO, STDOUT_FILENO, planner, scheduler, directory, signals.number());
    directory.replay(scheduler, [&](const nlohmann::json& line) { outside->replay(line); });
  } else if (options.finalists > 1) {
    finals.emplace(options, planner, scheduler, directory);
    directory.replay(scheduler, [&](const nlohmann::json& line) {
      if (line.value("kind", "") == "final") finals->replay(line);
    });
  } else {
    directory.replay(scheduler);
  }
  std::vector<std::string> notes = start_notes(options, plan, corpus);
  std::shared_ptr<const trainer::Checkpoint> init_from =
      trainer::open_init_from(first, corpus, notes);

  const trainer::DevicePeak peak = trainer::peak_of(first);
  std::atomic<int> stop = 0;
  kit::TrialRun::Shared shared{.directory = directory,
                               .corpus = corpus,
                               .init_from = std::move(init_from),
                               .peak_flops = peak.flops,
                               .stop = stop};
  shared.describe = [&](const trainer::RunDirectory& run, const trainer::RunConfig& config,
                        const kit::CaptureGroup& group) {
    kit::PlanReport report{group.run};
    report.run.config = config;
    kit::write_run_facts(run, report, peak, corpus);
  };
  if (outside) {
    shared.evaluated = [&](std::size_t trial, std::int64_t step,
                           const trainer::EvalResult& result) {
      outside->evaluated(trial, step, result);
    };
    shared.ended = [&](std::size_t trial, const kit::TrialResult& result) {
      outside->ended(trial, result);
    };
  }
  kit::SweepRun run(plan, scheduler, directory, std::move(shared));
  kit::SweepView view(plan, options.ask_tell ? STDERR_FILENO : STDOUT_FILENO);
  for (const std::string& note : notes)
    view.note(note);
  view.note(fmt::format("sweep directory: {}{}", directory.root().string(),
                        directory.is_resumed() ? " (resumed)" : ""));
  if (outside) outside->begin();
  SweepLoop(plan, scheduler, directory, run, signals.number(), view, outside ? &*outside : nullptr,
            finals ? &*finals : nullptr)
      .run();

  const std::vector<kit::TrialStatus> status = scheduler.status();
  view.finish(status);
  if (const std::string failure = run.failure(); !failure.empty()) throw Error(failure);
  const std::string where = directory.root().string();
  if (const int signal = signals.number(); signal != 0) {
    view.note(fmt::format("stopped; to continue: {} sweep --resume {}", program_word(),
                          shell_word(where)));
    return 128 + signal;
  }
  if (status.empty()) {
    view.note("no trials were given");
    return 0;
  }
  const std::vector<kit::PointScore> best = kit::best_points(plan, status);
  if (best.empty())
    throw Error(fmt::format("no trial was completed: {}/sweep.csv has the reasons", where));
  const std::optional<kit::Finals::Best> final_best =
      finals ? finals->best() : std::optional<kit::Finals::Best>();
  const std::string certainty = final_best ? final_best->text : kit::certainty_text(plan, status);
  if (!certainty.empty()) view.note(certainty);
  const std::size_t trial = final_best ? final_best->trial : best[0].best_trial;
  note_best(options, plan.trials[trial],
            fmt::format("trial {}, {}", trial, directory.trial(trial).string()), view);
  if (options.transfer_to) {
    const kit::Transfer transfer = kit::transfer_of(options, plan, status);
    replace_file(directory.root() / kit::kTransferFile, kit::transfer_json(transfer));
    view.note(kit::transfer_text(transfer));
  }
  view.note(fmt::format("captures: {}; all trials: {}/sweep.csv", run.captures(), where));
  return 0;
}

}  // namespace muo::cli
