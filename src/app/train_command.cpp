#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

#include "app/checkpoint/model_json.h"
#include "app/checkpoint/run_directory.h"
#include "app/cli.h"
#include "app/process_per_device.h"
#include "app/report/run_facts.h"
#include "app/run/backend.h"
#include "app/run/device_rates.h"
#include "app/run/memory_advice.h"
#include "app/run/memory_fit.h"
#include "app/run/run_config.h"
#include "app/run/run_memory.h"
#include "app/run/scaling.h"
#include "app/run/tuning.h"
#include "app/run/world.h"
#include "app/train/open_run.h"
#include "app/train/stop_signal.h"
#include "app/train/trainer.h"
#include "base/shell_word.h"
#include "base/system_error_text.h"
#include "base/terminal.h"
#include "runtime/memory/memory_plan.h"

namespace muo::app {
namespace {

// Start-up writes these files at its end: that it cannot should show at its beginning.
void require_writable(std::string_view option, const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (std::filesystem::is_directory(file) || ::access(folder.c_str(), W_OK) != 0)
    throw input_error("{}: cannot write to {}: {}", option, file.string(),
                      system_error_text(std::filesystem::is_directory(file) ? EISDIR : errno));
}

void check_files(const TrainOptions& options) {
  if (!options.run.init_from.empty() && !options.run.resume.empty() && options.run.resume != "auto")
    throw InputError("--init-from starts a new run, --resume goes on with one: give one of them");
  if (!options.run.graph_dot.empty()) {
    if (!options.capture.graph)
      throw InputError("--graph-dot: with --graph off there is no graph to write");
    require_writable("--graph-dot", options.run.graph_dot);
  }
  if (!options.numbers.gemm_table.empty())
    require_writable("--gemm-table", options.numbers.gemm_table);
}

// What matters at the start; all the rest is for --verbose and output.log.
std::vector<std::string> start_lines(const RunConfig& config, const data::Corpus& corpus,
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
          "step: {} tokens: {} x {} rows of {}{}{}{}{}", config.tokens_per_step(), config.world(),
          config.step.batch, config.model.seq_len,
          corpus.train_documents == nullptr
              ? ""
              : fmt::format(", documents packed ({:.1f} % used)", 100 * config.packing_share),
          config.model.document_token < 0 ? "" : ", attention within documents",
          micro_steps == 1 ? "" : fmt::format(", {} times", micro_steps),
          recompute_share(config) > 0 ? fmt::format("; recomputes {}", recompute_text(config))
                                      : ""),
      fmt::format(
          "horizon: {} steps: {} tokens{}, {:.3g} FLOPs", config.iterations(), count_text(tokens),
          config.train_tokens == 0 ? ""
                                   : fmt::format(", {:.3g} times the training data",
                                                 tokens / static_cast<double>(config.train_tokens)),
          config.flops_per_token * tokens)};
  if (config.options.run.sizes == CpuSizes::kQuick) lines.insert(lines.begin(), kQuickSizes);
  return lines;
}

// For a shell in the folder that this program was started in.
std::string next_commands(const RunConfig& config, const RunDirectory& directory, bool ended) {
  const std::string program = program_word();
  const std::string run = shell_word(directory.root.string());
  std::string out = "next:";
  if (!ended) out += fmt::format("\n  {} train --resume {}", program, run);
  if (config.bytes_per_token > 0)
    out += fmt::format("\n  {} sample {} --prompt \"The \"", program, run);
  return out + fmt::format("\n  {} report {}", program, run);
}

// How long it will take, and what may be more, or less, than was meant.
void note_cost(Logger& logger, const RunConfig& config, const data::Corpus& corpus,
               const DevicePeak& peak) {
  constexpr double kLeastShare = 0.02, kEnough = 1e6;
  const auto held_out = static_cast<double>(corpus.val->size());
  if (const double share = held_out / (held_out + static_cast<double>(corpus.train->size()));
      config.options.data.val_paths.empty() && share < kLeastShare && held_out < kEnough)
    logger.note(
        fmt::format("warning: {:.2g} % of the data is held out, {} tokens, whose loss says "
                    "little: --val-data FILE gives more",
                    100 * share, corpus.val->size()));
  constexpr double kMostPasses = 10, kDay = 86'400;
  const double tokens = config.horizon_tokens();
  if (const double passes = tokens / static_cast<double>(config.train_tokens);
      config.train_tokens > 0 && passes > kMostPasses)
    logger.note(fmt::format(
        "warning: {:.3g} passes over the training data, which a model comes to "
        "know by heart: --num-iterations {} is {:g} of them",
        passes,
        config.trained.steps +
            static_cast<std::int64_t>((kMostPasses * static_cast<double>(config.train_tokens) -
                                       static_cast<double>(config.trained.tokens)) /
                                      static_cast<double>(config.tokens_per_step())),
        kMostPasses));
  logger.note(fmt::format("peak: {}{}", peak.text,
                          peak.flops > 0 ? "; mfu is a share of it" : ": mfu is null"),
              Verbosity::kVerbose);
  const ExpectedTime expected = expected_time(config, peak);
  if (expected.seconds >= kDay)
    logger.note(
        fmt::format("warning: this takes {}: a smaller --depth, --num-iterations or "
                    "--target-batch-size makes it shorter",
                    expected.text));
  else if (expected.seconds > 0)
    logger.note("expected: " + expected.text);
}

void note_all(Logger& logger, const std::vector<std::string>& lines, Verbosity from) {
  for (const std::string& line : lines)
    logger.note(line, from);
}

void note_start(Logger& logger, const RunConfig& config, const data::Corpus& corpus,
                const MemoryPlan& memory, const OpenedRun& opened, const LaunchedWorld* world,
                const DevicePeak& peak) {
  for (const auto& lines : {config.notes, scaling_notes(config), attention_notes(config)})
    note_all(logger, lines, Verbosity::kVerbose);
  if (world != nullptr) logger.note(world->text());
  note_all(logger, start_lines(config, corpus, memory), Verbosity::kUsual);
  if (config.group.is_first()) note_cost(logger, config, corpus, peak);
  logger.note(fmt::format("run directory: {}", opened.directory.root.string()));
  note_all(logger, opened.notes, Verbosity::kUsual);
}

// All decisions, before anything is written. `notes` gets what the user should know.
PlannedRun plan_training(const TrainOptions& options, const data::Corpus& corpus,
                         std::vector<std::string>& notes) {
  RunConfig config = resolve(options, corpus);
  if (config.group.is_first()) warn_of_unused_gpus(options.devices.backend, config.group, stdout);
  require_same_run(config, {{"the data", data_identity(corpus)}});
  const MemoryBudget budget = agreed_budget(config);
  MemoryPlan memory =
      waiting("planning memory", [&] { return fit_memory(config, budget.to_plan); });
  require_fit(config, memory, budget, options, corpus);
  require_batches(config, budget.process);
  PlannedRun run = plan_run(std::move(config), std::move(memory));
  plan_background_saves(run, budget.process, notes);
  return run;
}

// The run, or this process' part of it where there is a world.
int train(const TrainOptions& options, const LaunchedWorld* world) {
  ProcessGroup* const processes = options.devices.processes;
  const data::Corpus corpus =
      waiting("reading the data", [&] { return data::open_corpus(options.data); });
  std::vector<std::string> notes;
  PlannedRun planned = plan_training(options, corpus, notes);
  RunConfig& config = planned.config;
  const bool first = config.group.is_first();
  OpenedRun opened;
  const std::string told = made_by_first(processes, "the opening of the run", [&] {
    opened = open_run(config, corpus);
    return opened_text(opened);
  });
  if (!first) opened = open_as_told(told, config, corpus);
  std::ranges::move(notes, std::back_inserter(opened.notes));
  const RunDirectory directory = opened.directory;
  config.options.run.out = directory.root.string();
  Tuning tuning(config);
  DevicePeak peak;
  if (first) peak = waiting("measuring the peak", [&] { return peak_of(config); });
  LoggerOptions logging;
  const std::string seen_by_all = made_by_first(processes, "the making of the run's files", [&] {
    return before_any_work("--out", config.options.run.out, [&] {
      logging = make_run_directory(config, corpus, opened, peak.flops, [&] {
        write_run_facts(directory, {.run = planned}, peak, corpus);
      });
      return written_config(directory);
    });
  });
  if (!first) logging = open_log_of(processes->process(), config, opened, seen_by_all);
  if (config.group.plugin != nullptr)
    logging.device_memory = planned.memory.rank_bytes(config.world()) * config.world();
  RunFiles files(config, std::move(opened), logging, processes);
  Logger& logger = files.logger;
  const StopSignal signals;
  note_start(logger, config, corpus, planned.memory, files.opened, world, peak);
  TrainingRun run{.config = config, .corpus = corpus, .files = files, .signal = signals.number()};
  const OnStop stop([&](int signal) {
    logger.note(stop_note(signal, "a checkpoint of the steps so far"));
    run.interrupt();
  });
  config.group.watch.before_exit = [&logger] { logger.flush(); };
  logger.busy("capturing the step");
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    CapturedRank captured(rank, planned, corpus);
    captured.capture(corpus, &tuning);
    if (rank.rank == 0) note_all(logger, tuning.take_notes(), Verbosity::kUsual);
    train_run(captured, run);
    if (rank.rank == 0 && run.decided.too_many_skipped) throw Error(too_many_skipped_text(run));
  });
  tuning.keep();  // what eager steps met
  note_all(logger, tuning.take_notes(), Verbosity::kUsual);
  if (processes != nullptr) processes->leave();
  if (first) {
    logger.summary();
    logger.note("run directory: " + directory.root.string(), Verbosity::kQuiet);
    logger.note(next_commands(config, directory, run.decided.stop == 0));
  }
  logger.close();
  return run.decided.stop == 0 ? 0 : 128 + run.decided.stop;
}

}  // namespace

int run_command(const TrainOptions& options) {
  check_files(options);
  if (options.devices.process_per_device) return start_processes(options);
  TrainOptions joined = options;
  return run_in_world(
      joined.devices, [&](const Launch&) { return folder_of_run(options); },
      [&](const LaunchedWorld* world) { return train(joined, world); });
}

}  // namespace muo::app
