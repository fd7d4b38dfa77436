#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "app/checkpoint/run_directory.h"
#include "app/cli.h"
#include "app/report/run_facts.h"
#include "app/train/backend.h"
#include "app/train/device_rates.h"
#include "app/train/logger.h"
#include "app/train/resume.h"
#include "app/train/run_config.h"
#include "app/train/run_memory.h"
#include "app/train/scaling.h"
#include "app/train/stop_signal.h"
#include "app/train/trainer.h"
#include "base/terminal.h"
#include "kernels/gemm.h"
#include "runtime/memory/memory_plan.h"

namespace muo {
namespace {

// Start-up writes these files at its end: that it cannot should show at its beginning.
void require_writable(std::string_view option, const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (std::filesystem::is_directory(file) || ::access(folder.c_str(), W_OK) != 0)
    throw input_error(
        "{}: cannot write to {}: {}", option, file.string(),
        std::system_category().message(std::filesystem::is_directory(file) ? EISDIR : errno));
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

std::string peak_note(const RunConfig& config, const DevicePeak& peak, std::int64_t first_step) {
  if (peak.flops <= 0) return fmt::format("peak: {}: mfu is null", peak.text);
  const double flops_left = config.flops_per_token *
                            static_cast<double>(config.iterations() - first_step) *
                            static_cast<double>(config.tokens_per_step());
  return fmt::format("peak: {}; mfu is a share of it, and {:.3g} FLOPs take {} at it", peak.text,
                     flops_left, duration_text(flops_left / peak.flops));
}

}  // namespace

int run_command(const TrainOptions& options) {
  check_files(options);
  const Corpus corpus = open_corpus(options.data);
  RunConfig config = resolve(options, corpus);
  warn_of_unused_gpus(options.devices.backend, config.group, stdout);
  const MemoryPlan memory = fit_batch(config, memory_to_plan_per_rank(config.group));
  config.group.watch.stuck_after = stuck_after(config);
  const std::vector<ParamSpec> params = gpt_parameters(config.model);
  const ShardingPlan plan = make_sharding_plan(config, params);
  require_memory(config, memory, available_memory_per_rank(config.group));
  const RunDirectory directory = find_run_directory(config.options);
  config.options.run.out = directory.root.string();
  FileLock lock = lock_run_directory(directory);
  std::vector<std::string> notes = config.notes;
  const std::optional<Checkpoint> resume = open_resume(directory, config, corpus, notes);
  const std::optional<Checkpoint> init_from = resume ? std::nullopt : open_init_from(config, notes);
  const std::int64_t staging = plan_staging_memory(params, plan);
  const bool saves_in_background = choose_background_saves(
      config, memory.rank_bytes(config.world()), staging, available_memory(), notes);
  if (!options.numbers.gemm_table.empty()) use_gemm_table(options.numbers.gemm_table);
  create_run_directory(directory, config.options, lock);

  const DevicePeak peak = peak_of(config);
  write_run_facts(directory, {config, plan, memory, {}, saves_in_background ? staging : 0}, peak);
  const std::int64_t first_step = resume ? resume->info().step : 0;
  Logger logger(open_log(config, directory, first_step, peak.flops));
  const auto note_all = [&logger](const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      logger.note(line);
  };
  logger.note(corpus.description);
  note_all(notes);
  note_all(scaling_notes(config));
  logger.note(fmt::format("model: {}, {} parameters; {} devices, {}; {:.0f} MiB per device",
                          config.options.model.preset, config.parameters, config.world(),
                          config.options.sharding.strategy,
                          static_cast<double>(memory.rank_bytes(config.world())) / (1 << 20)));
  logger.note(peak_note(config, peak, first_step));
  note_all(attention_notes(config));

  CheckpointSaver saver(directory.root, config.world(), keep_checkpoints(config.options.save));
  if (resume && resume->path().parent_path() == directory.checkpoints())
    saver.mark_verified(resume->info().step);
  const StopSignal signals;
  TrainingRun run{.config = config,
                  .corpus = corpus,
                  .saver = saver,
                  .resume = resume ? &*resume : nullptr,
                  .init_from = init_from ? &*init_from : nullptr,
                  .lost_evaluation = resume && lost_evaluation(directory, config, *resume),
                  .logger = logger,
                  .signal = signals.number()};
  config.group.watch.before_exit = [&logger] { logger.flush(); };
  DeviceGroup group(config.group);
  group.run([&](RankContext& rank) {
    CapturedRank captured(rank, config, params, plan, corpus, saves_in_background);
    captured.capture(corpus);
    train_run(captured, run);
    if (rank.rank == 0 && run.too_many_skipped) throw Error(too_many_skipped_text(run));
  });
  if (!options.numbers.gemm_table.empty())
    save_gemm_table(options.numbers.gemm_table);  // what eager steps met
  logger.summary();
  logger.note(fmt::format("run directory: {}", directory.root.string()));
  logger.close();
  return run.stop == 0 ? 0 : 128 + run.stop;
}

}  // namespace muo
