#include "trainer/train/open_run.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/durable_files.h"
#include "base/json_text.h"
#include "trainer/checkpoint/run_tokenizer.h"
#include "trainer/train/event_log.h"

namespace muo::trainer {

namespace fs = std::filesystem;

namespace {

bool is_same_path(const fs::path& a, const fs::path& b) {
  return fs::weakly_canonical(fs::absolute(a) / "") == fs::weakly_canonical(fs::absolute(b) / "");
}

// Throws unless this process's --out is the directory that process 0 has opened.
void require_own_directory(const TrainOptions& options, const fs::path& opened) {
  const std::string& out = options.run.out;
  const fs::path folder = folder_of_run(options);
  if (out.empty() ? is_same_path(opened.parent_path(), folder) : is_same_path(opened, out)) return;
  throw input_error(
      "--out: process 0 trains in {}, but this process was given {}: give all processes the "
      "same --out and working directory",
      opened.string(), out.empty() ? "a run in " + fs::absolute(folder).string() : out);
}

}  // namespace

OpenedRun open_run(RunConfig& config, const data::Corpus& corpus) {
  OpenedRun out;
  out.directory = find_run_directory(config.options);
  out.lock = before_any_work("--out", out.directory.root.string(),
                             [&] { return lock_run_directory(out.directory); });
  out.resume = open_resume(out.directory, config, corpus, out.notes);
  if (out.resume)
    out.lost = lost_work(out.directory, config, *out.resume);
  else
    out.init_from = open_init_from(config, corpus, out.notes);
  if (!config.paces.empty() && config.paces.front().from > out.first_step())
    throw input_error(
        "--positions-from {}: begins at step {}: --resume a checkpoint of that step or later",
        config.options.batch.positions_from, config.paces.front().from);
  return out;
}

OpenedRun open_trial(const RunDirectory& directory, RunConfig& config,
                     std::shared_ptr<const Checkpoint> init_from) {
  OpenedRun out{.directory = directory, .lock = lock_run_directory(directory)};
  std::error_code error;
  if (fs::exists(directory.checkpoints(), error))
    out.resume = newest_checkpoint(directory.root, out.notes);
  if (out.resume) {
    continue_from(config, trained_by(*out.resume));
    out.lost = lost_work(directory, config, *out.resume);
  } else {
    out.init_from = std::move(init_from);
  }
  return out;
}

std::string opened_text(const OpenedRun& opened) {
  const auto absolute = [](const fs::path& path) {
    return json_of_path(path.empty() ? path : fs::absolute(path));
  };
  return nlohmann::json{{"root", absolute(opened.directory.root)},
                        {"resume", absolute(opened.resume ? opened.resume->path() : fs::path())},
                        {"lost_evaluation", opened.lost.evaluation},
                        {"lost_sample", opened.lost.sample}}
      .dump();
}

OpenedRun open_from_root(const std::string& text, RunConfig& config, const data::Corpus& corpus) {
  const auto opening = nlohmann::json::parse(text);
  OpenedRun out;
  out.directory.root = path_of_json(opening.at("root"));
  require_own_directory(config.options, out.directory.root);
  if (const fs::path resume = path_of_json(opening.at("resume")); !resume.empty()) {
    out.resume.emplace(resume, OpenCheckpoint{.verify = false});  // process 0 has verified it
    continue_from(config, trained_by(*out.resume));
  } else {
    out.init_from = open_init_from(config, corpus, out.notes);
  }
  out.lost = {.evaluation = opening.at("lost_evaluation"), .sample = opening.at("lost_sample")};
  return out;
}

LoggerOptions make_run_directory(const RunConfig& config, const data::Corpus& corpus,
                                 OpenedRun& opened, double peak_flops,
                                 const std::function<void()>& describe) {
  const RunDirectory& directory = opened.directory;
  const std::int64_t first_step = opened.first_step();
  create_run_directory(directory, config.resolved(), opened.lock);
  if (corpus.tokenizer && corpus.tokenizer_name != "byte") {
    const data::TokenizerCopy copy = data::copy_tokenizer(corpus.tokenizer_name);
    replace_file(directory.root / copy.name, copy.contents);
  }
  describe();
  return {.metrics = directory.metrics(),
          .first_step = first_step,
          .iterations = config.is_bounded() ? config.iterations() : 0,
          .time_budget = config.options.batch.time_budget.value_or(Duration{}).seconds,
          .seconds_before = config.trained.clock.spent,
          .tokens = config.token_count(),
          .bytes_per_token = config.bytes_per_token,
          .flops_per_token = config.flops_per_token,
          .peak_flops = peak_flops,
          .log_every = config.options.run.log_every,
          .warmup_steps = config.hyper.warmup_steps,
          .events = open_event_log(directory, config, first_step),
          .log = directory.root / "output.log",
          .verbosity = config.options.run.quiet     ? Verbosity::kQuiet
                       : config.options.run.verbose ? Verbosity::kVerbose
                                                    : Verbosity::kUsual,
          .alarms = config.options.run.alarms,
          .max_waiting =
              config.group.plugin == nullptr ? Alarms::kMaxWaiting : Alarms::kMaxWaitingOnGpu};
}

std::string written_config(const RunDirectory& directory) {
  const std::ifstream file(directory.config(), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

LoggerOptions open_process_log(int process, const RunConfig& config, const OpenedRun& opened,
                               const std::string& expected_config) {
  if (written_config(opened.directory) != expected_config)
    throw input_error(
        "--out {}: its config.toml is not the one that process 0 wrote: give a directory on a "
        "file system that all processes share",
        opened.directory.root.string());
  return {.metrics = {},
          .first_step = opened.first_step(),
          .iterations = config.iterations(),
          .tokens = config.token_count(),
          .log = opened.directory.root / fmt::format("output.{}.log", process),
          .terminal = -1};
}

RunFiles::RunFiles(const RunConfig& config, OpenedRun run, const LoggerOptions& logging,
                   ProcessGroup* processes)
    : opened(std::move(run)),
      logger(logging),
      saver(opened.directory.root, config.world(),
            {.last = std::max<std::int64_t>(0, config.options.save.keep_last),
             .every = std::max<std::int64_t>(0, config.options.save.keep_every)},
            processes) {
  const std::optional<Checkpoint>& from = opened.resume;
  if (from && from->path().parent_path() == opened.directory.checkpoints()) {
    saver.mark_verified(from->info().step);
    // A process that was killed may have renamed the checkpoint without having synced its name. A
    // sweep's journal must not get ahead of it.
    sync_directory(opened.directory.checkpoints());
  }
  saver.before_commit([this]() -> std::string {
    if (logger.flush(std::chrono::seconds(10))) return {};
    return "metrics.jsonl may lack steps before this checkpoint: it could not be written in 10 s";
  });
}

}  // namespace muo::trainer
