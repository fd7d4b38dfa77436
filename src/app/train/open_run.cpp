#include "app/train/open_run.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "app/options/option_row.h"
#include "app/train/event_log.h"
#include "base/durable_files.h"

namespace muo {

namespace fs = std::filesystem;

OpenedRun open_run(const RunConfig& config, const Corpus& corpus) {
  OpenedRun out;
  out.directory = find_run_directory(config.options);
  out.lock = before_any_work("--out", out.directory.root.string(),
                             [&] { return lock_run_directory(out.directory); });
  out.resume = open_resume(out.directory, config, corpus, out.notes);
  if (out.resume)
    out.lost = lost_work(out.directory, config, *out.resume);
  else
    out.init_from = open_init_from(config, corpus, out.notes);
  return out;
}

std::string opened_text(const OpenedRun& opened) {
  const auto absolute = [](const fs::path& path) {
    return path.empty() ? "" : fs::absolute(path).string();
  };
  return nlohmann::json{{"root", absolute(opened.directory.root)},
                        {"resume", opened.resume ? absolute(opened.resume->path()) : ""},
                        {"lost_evaluation", opened.lost.evaluation},
                        {"lost_sample", opened.lost.sample}}
      .dump();
}

OpenedRun open_as_told(const std::string& text, const RunConfig& config, const Corpus& corpus) {
  const auto told = nlohmann::json::parse(text);
  OpenedRun out;
  out.directory.root = told.at("root").get<std::string>();
  if (const auto resume = told.at("resume").get<std::string>(); !resume.empty())
    out.resume.emplace(resume, OpenCheckpoint{.verify = false});  // process 0 has
  else
    out.init_from = open_init_from(config, corpus, out.notes);
  out.lost = {.evaluation = told.at("lost_evaluation"), .sample = told.at("lost_sample")};
  return out;
}

void log_before_saves(CheckpointSaver& saver, Logger& logger) {
  saver.before_commit([&logger]() -> std::string {
    if (logger.flush(std::chrono::seconds(10))) return {};
    return "metrics.jsonl may lack steps before this checkpoint: it could not be written in 10 s";
  });
}

LoggerOptions open_log(const RunConfig& config, const RunDirectory& directory,
                       std::int64_t first_step, double peak_flops) {
  return {.metrics = directory.metrics(),
          .first_step = first_step,
          .iterations = config.iterations(),
          .tokens_per_step = config.tokens_per_step(),
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
          .most_waiting =
              config.group.plugin == nullptr ? Alarms::kMostWaiting : Alarms::kMostWaitingOnGpu};
}

KeepCheckpoints keep_checkpoints(const SaveOptions& options) {
  return {.last = std::max<std::int64_t>(0, options.keep_last),
          .every = std::max<std::int64_t>(0, options.keep_every)};
}

std::string written_config(const RunDirectory& directory) {
  const std::ifstream file(directory.config(), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

LoggerOptions open_log_of(int process, const RunConfig& config, const OpenedRun& run_at,
                          const std::string& wrote) {
  if (written_config(run_at.directory) != wrote)
    throw input_error(
        "--out {}: not here as process 0 has written it: all processes need one file system: give "
        "a directory there",
        run_at.directory.root.string());
  return {.metrics = {},
          .first_step = run_at.first_step(),
          .iterations = config.iterations(),
          .tokens_per_step = config.tokens_per_step(),
          .log = run_at.directory.root / fmt::format("output.{}.log", process),
          .terminal = -1};
}

}  // namespace muo
