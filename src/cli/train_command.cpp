#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include "base/shell_word.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/result_file.h"
#include "kit/report/run_facts.h"
#include "runtime/memory/memory_plan.h"
#include "trainer/checkpoint/model_json.h"
#include "trainer/checkpoint/run_directory.h"
#include "trainer/process_per_device.h"
#include "trainer/run/backend.h"
#include "trainer/run/device_rates.h"
#include "trainer/run/memory_advice.h"
#include "trainer/run/memory_fit.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_memory.h"
#include "trainer/run/scaling.h"
#include "trainer/run/tuning.h"
#include "trainer/run/world.h"
#include "trainer/train/open_run.h"
#include "trainer/train/stop_signal.h"
#include "trainer/train/trainer.h"

namespace muo::cli {
namespace {

void check_files(const trainer::TrainOptions& options) {
  if (!options.run.init_from.empty() && !options.run.resume.empty() && options.run.resume != "auto")
    throw InputError("--init-from starts a new run, --resume continues one: give only one of them");
  if (!options.run.graph_dot.empty()) {
    if (!options.capture.graph)
      throw InputError("--graph-dot: with --graph off there is no graph to write");
    require_writable("--graph-dot", options.run.graph_dot);
  }
  if (!options.run.timeline.empty()) require_writable("--timeline", options.run.timeline);
  if (!options.numbers.gemm_table.empty())
    require_writable("--gemm-table", options.numbers.gemm_table);
  if (!options.run.result.empty() && options.run.result != "-")
    require_writable("--result", options.run.result);
}

// The most important facts, shown at the start; the others are for --verbose and output.log.
std::vector<std::string> start_lines(const trainer::RunConfig& config, const data::Corpus& corpus,
                                     const MemoryPlan& memory) {
  const bool host = config.group.plugin == nullptr;
  const double tokens = config.horizon_tokens();
  const std::int64_t micro_steps = config.step.accumulation;
  std::vector<std::string> lines = {
      fmt::format("model: {}, {} layer{} of width {}, {} parameters, {}",
                  name_of(config.options.model.preset), config.model.n_layer,
                  config.model.n_layer == 1 ? "" : "s", config.model.n_embd,
                  count_text(static_cast<double>(config.parameters)), name_of(config.model.dtype)),
      corpus.description,
      fmt::format("devices: {} {}, {}; {:.0f} MiB each", config.world(),
                  host                  ? "virtual (CPU)"
                  : config.world() == 1 ? "GPU"
                                        : "ranks on GPUs",
                  config.options.sharding.strategy,
                  static_cast<double>(memory.rank_bytes(config.world())) / (1 << 20)),
      fmt::format(
          "step: {} tokens: {} x {} rows of {}{}{}{}{}", config.batch_text(), config.world(),
          config.step.batch, config.model.seq_len,
          corpus.train_documents == nullptr
              ? ""
              : fmt::format(", documents packed ({:.1f} % used)", 100 * config.packing_share),
          config.model.document_token < 0 ? "" : ", attention within documents",
          micro_steps == 1
              ? ""
              : fmt::format(", {}{} times", config.batches.empty() ? "" : "at most ", micro_steps),
          trainer::recompute_share(config) > 0
              ? fmt::format("; recomputes {}", trainer::recompute_text(config))
              : ""),
  };
  std::string horizon;
  if (config.options.batch.time_budget)
    horizon = to_text(*config.options.batch.time_budget) + " of training";
  if (config.is_bounded())
    horizon += fmt::format(
        "{}{} steps: {} tokens{}, {:.3g} FLOPs", horizon.empty() ? "" : ", at most ",
        config.iterations(), count_text(tokens),
        config.train_tokens == 0 ? ""
                                 : fmt::format(", {:.3g} times the training data",
                                               tokens / static_cast<double>(config.train_tokens)),
        config.flops_per_token * tokens);
  lines.push_back("horizon: " + horizon);
  if (config.options.run.sizes == trainer::CpuSizes::kQuick)
    lines.insert(lines.begin(), trainer::kQuickSizes);
  return lines;
}

// Commands for the next steps, for a shell in the current directory.
std::string next_commands(const trainer::RunConfig& config, const trainer::RunDirectory& directory,
                          bool ended) {
  const std::string program = program_word();
  const std::string run = shell_word(directory.root.string());
  std::string out = "next:";
  if (!ended) out += fmt::format("\n  {} train --resume {}", program, run);
  if (config.bytes_per_token > 0)
    out += fmt::format("\n  {} sample {} --prompt \"The \"", program, run);
  return out + fmt::format("\n  {} report {}", program, run);
}

// Logs the expected time and warns about unusual amounts of data or time.
void note_cost(trainer::Logger& logger, const trainer::RunConfig& config,
               const data::Corpus& corpus, const trainer::DevicePeak& peak) {
  constexpr double kLeastShare = 0.02, kEnough = 1e6;
  const auto held_out = static_cast<double>(corpus.val->size());
  if (const double share = held_out / (held_out + static_cast<double>(corpus.train->size()));
      config.options.data.val_paths.empty() && share < kLeastShare && held_out < kEnough)
    logger.note(
        fmt::format("warning: only {:.2g} % of the data is held out, {} tokens, so its loss is "
                    "imprecise: give more with --val-data FILE",
                    100 * share, corpus.val->size()));
  constexpr double kMaxPasses = 10, kDay = 86'400;
  const double tokens = config.horizon_tokens();
  if (const double passes = tokens / static_cast<double>(config.train_tokens);
      config.train_tokens > 0 && config.is_bounded() && passes > kMaxPasses)
    logger.note(fmt::format(
        "warning: {:.3g} passes over the training data, so the model may "
        "memorize it: --num-iterations {} makes {:g} passes",
        passes,
        config.trained.steps +
            static_cast<std::int64_t>((kMaxPasses * static_cast<double>(config.train_tokens) -
                                       static_cast<double>(config.trained.tokens)) /
                                      static_cast<double>(config.tokens_per_step())),
        kMaxPasses));
  logger.note(fmt::format("peak: {}{}", peak.text,
                          peak.flops > 0 ? "; mfu is a share of it" : ": mfu is null"),
              trainer::Verbosity::kVerbose);
  const trainer::ExpectedTime expected = trainer::expected_time(config, peak);
  if (expected.seconds >= kDay)
    logger.note(
        fmt::format("warning: this takes {}: reduce --depth, --num-iterations or "
                    "--target-batch-size to shorten it",
                    expected.text));
  else if (expected.seconds > 0)
    logger.note("expected: " + expected.text);
}

void note_all(trainer::Logger& logger, const std::vector<std::string>& lines,
              trainer::Verbosity from) {
  for (const std::string& line : lines)
    logger.note(line, from);
}

void note_start(trainer::Logger& logger, const trainer::RunConfig& config,
                const data::Corpus& corpus, const MemoryPlan& memory,
                const trainer::OpenedRun& opened, const trainer::LaunchedWorld* world,
                const trainer::DevicePeak& peak) {
  for (const auto& lines :
       {config.notes, trainer::scaling_notes(config), trainer::attention_notes(config)})
    note_all(logger, lines, trainer::Verbosity::kVerbose);
  if (world != nullptr) logger.note(world->text());
  note_all(logger, start_lines(config, corpus, memory), trainer::Verbosity::kUsual);
  if (config.group.is_first()) note_cost(logger, config, corpus, peak);
  logger.note(fmt::format("run directory: {}", opened.directory.root.string()));
  note_all(logger, opened.notes, trainer::Verbosity::kUsual);
}

// Makes all decisions before anything is written. Adds notes for the user to `notes`.
trainer::PlannedRun plan_training(const trainer::TrainOptions& options, const data::Corpus& corpus,
                                  std::vector<std::string>& notes) {
  trainer::RunConfig config = trainer::resolve(options, corpus);
  if (config.group.is_first())
    trainer::warn_of_unused_gpus(options.devices.backend, config.group, stdout);
  trainer::require_same_run(config, {{"the data", trainer::data_identity(corpus)}});
  const trainer::MemoryBudget budget = trainer::agreed_budget(config);
  MemoryPlan memory =
      waiting("planning memory", [&] { return trainer::fit_memory(config, budget.to_plan); });
  trainer::require_fit(config, memory, budget, options, corpus);
  trainer::require_batches(config, budget.process);
  trainer::PlannedRun run = trainer::plan_run(std::move(config), std::move(memory));
  trainer::plan_background_saves(run, budget.process, notes);
  return run;
}

// The contents of --result: docs/reference.md.
nlohmann::ordered_json result_of(const trainer::PlannedRun& planned,
                                 const trainer::TrainingRun& run, const trainer::DevicePeak& peak) {
  const trainer::RunConfig& config = planned.config;
  const std::int64_t done = run.steps_done;
  const double seconds = run.seconds;
  const auto tokens = static_cast<double>(config.token_count().between(config.trained.steps, done));
  nlohmann::ordered_json out = {
      {"state", run.decided.too_many_skipped ? "diverged"
                : run.decided.stop != 0      ? "stopped"
                                             : "done"},
      {"run", config.options.run.out},
      {"step", done},
      {"tokens", config.token_count().before(done)},
      {"train_seconds", seconds},
      {"tokens_per_s", nullptr},
      {"mfu", nullptr},
      {"peak_memory_bytes",
       config.group.plugin == nullptr
           ? peak_resident_memory().value_or(0)
           : planned.memory.rank_bytes(config.world()) * config.group.ranks_per_device},
      {"val_loss", nullptr},
      {"val_bpb", nullptr}};
  if (seconds > 0) {
    out["tokens_per_s"] = tokens / seconds;
    if (peak.flops > 0) out["mfu"] = config.flops_per_token * tokens / seconds / peak.flops;
  }
  if (const std::optional<trainer::EvalResult>& last = run.last_evaluation) {
    if (std::isfinite(last->loss)) out["val_loss"] = last->loss;
    if (last->bpb >= 0) out["val_bpb"] = last->bpb;
  }
  return out;
}

// Trains the run, or this process's part of it if `world` is not null. Fills `result`.
int train(const trainer::TrainOptions& options, const trainer::LaunchedWorld* world,
          nlohmann::ordered_json& result) {
  ProcessGroup* const processes = options.devices.processes;
  const data::Corpus corpus =
      waiting("reading the data", [&] { return data::open_corpus(options.data); });
  std::vector<std::string> notes;
  trainer::PlannedRun planned = plan_training(options, corpus, notes);
  trainer::RunConfig& config = planned.config;
  const bool first = config.group.is_first();
  trainer::OpenedRun opened;
  const std::string opening = trainer::run_on_root(processes, "the opening of the run", [&] {
    opened = trainer::open_run(config, corpus);
    return trainer::opened_text(opened);
  });
  if (!first) opened = trainer::open_from_root(opening, config, corpus);
  std::ranges::move(notes, std::back_inserter(opened.notes));
  const trainer::RunDirectory directory = opened.directory;
  config.options.run.out = directory.root.string();
  trainer::Tuning tuning(config);
  trainer::DevicePeak peak;
  if (first) peak = waiting("measuring the peak", [&] { return trainer::peak_of(config); });
  trainer::LoggerOptions logging;
  const std::string seen_by_all =
      trainer::run_on_root(processes, "the creation of the run's files", [&] {
        return before_any_work("--out", config.options.run.out, [&] {
          logging = trainer::make_run_directory(config, corpus, opened, peak.flops, [&] {
            kit::write_run_facts(directory, {.run = planned}, peak, corpus);
          });
          return trainer::written_config(directory);
        });
      });
  if (!first)
    logging = trainer::open_process_log(processes->process(), config, opened, seen_by_all);
  if (config.group.plugin != nullptr) {
    logging.device_memory = planned.memory.rank_bytes(config.world()) * config.world();
    if (first) logging.power = std::make_shared<PowerMeter>(config.group);
    logging.devices = config.world() / config.group.ranks_per_device;
  }
  trainer::RunFiles files(config, std::move(opened), logging, processes);
  trainer::Logger& logger = files.logger;
  const trainer::StopSignal signals;
  note_start(logger, config, corpus, planned.memory, files.opened, world, peak);
  std::optional<Timeline> timeline;
  if (!config.options.run.timeline.empty()) {
    timeline.emplace(config.options.run.timeline, config.group);
    timeline->set_peak(peak.flops * config.group.ranks_per_device /
                       trainer::devices_at_once(config.group));
  }
  trainer::TrainingRun run{.config = config,
                           .corpus = corpus,
                           .files = files,
                           .signal = signals.number(),
                           .timeline = timeline ? &*timeline : nullptr};
  const trainer::OnStop stop([&](int signal) {
    logger.note(trainer::stop_note(signal, "a checkpoint of the steps so far"));
    run.interrupt();
  });
  config.group.watch.before_exit = [&logger] { logger.flush(); };
  logger.busy("capturing the step");
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    trainer::CapturedRank captured(rank, planned, corpus);
    captured.capture(corpus, &tuning);
    if (rank.rank == 0) note_all(logger, tuning.take_notes(), trainer::Verbosity::kUsual);
    trainer::train_run(captured, run);
    if (rank.rank == 0) result = result_of(planned, run, peak);
    if (rank.rank == 0 && run.decided.too_many_skipped)
      throw Error(trainer::too_many_skipped_text(run));
  });
  tuning.keep();  // products measured in eager steps
  note_all(logger, tuning.take_notes(), trainer::Verbosity::kUsual);
  if (processes != nullptr) processes->leave();
  if (first) {
    if (timeline && !timeline->is_written()) logger.note(timeline->note());
    logger.summary();
    logger.note("run directory: " + directory.root.string(), trainer::Verbosity::kQuiet);
    logger.note(next_commands(config, directory, run.decided.stop == 0));
  }
  logger.close();
  return run.decided.stop == 0 ? 0 : 128 + run.decided.stop;
}

// Trains, and then writes --result, also if training fails.
int train(const trainer::TrainOptions& options, const trainer::LaunchedWorld* world) {
  const ProcessGroup* const processes = options.devices.processes;
  const bool first = processes == nullptr || processes->is_first();
  const ResultFile file(first ? options.run.result : std::string());
  nlohmann::ordered_json result = {{"state", "failed"}};
  try {
    const int status = train(options, world, result);
    file.write(result);
    return status;
  } catch (const std::exception& error) {
    if (result["state"] == "done") result["state"] = "failed";
    result["message"] = error.what();
    try {
      file.write(result);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the cause matters more
    }
    throw;
  }
}

}  // namespace

int run_command(const trainer::TrainOptions& options) {
  check_files(options);
  if (options.devices.process_per_device) return trainer::start_processes(options);
  trainer::TrainOptions joined = options;
  return trainer::run_in_world(
      joined.devices, [&](const trainer::Launch&) { return trainer::folder_of_run(options); },
      [&](const trainer::LaunchedWorld* world) { return train(joined, world); });
}

}  // namespace muo::cli
