#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_saver.h"
#include "app/checkpoint/run_directory.h"
#include "app/run/run_config.h"
#include "app/train/logger.h"
#include "app/train/resume.h"
#include "data/token_data.h"

namespace muo::app {

// Where a run lies on the disk, and what it goes on from.
struct OpenedRun {
  RunDirectory directory = {};
  FileLock lock = {};                                // of the directory, if there was one
  std::optional<Checkpoint> resume = {};             // none: from the start,
  std::shared_ptr<const Checkpoint> init_from = {};  // with these weights; null: with new ones
  LostWork lost = {};                                // of `resume`'s step
  std::vector<std::string> notes = {};               // what the user should know

  [[nodiscard]] std::int64_t first_step() const { return resume ? resume->info().step : 0; }
};

// Nothing is written; `config` gets what the checkpoint says is trained (go_on_from). Throws
// InputError, and WriteError if the directory cannot be locked.
OpenedRun open_run(RunConfig& config, const data::Corpus& corpus);

// The same of a sweep's trial: its newest checkpoint, or `init_from`.
OpenedRun open_trial(const RunDirectory& directory, RunConfig& config,
                     std::shared_ptr<const Checkpoint> init_from);

// The same for the other processes of a world: process 0 opens the run and tells them where.
std::string opened_text(const OpenedRun& opened);
OpenedRun open_as_told(const std::string& text, RunConfig& config, const data::Corpus& corpus);

// Makes the directory: config.toml, the tokenizer, what `describe` writes, and TensorBoard's file;
// and says how to log. Throws WriteError.
LoggerOptions make_run_directory(const RunConfig& config, const data::Corpus& corpus,
                                 OpenedRun& opened, double peak_flops,
                                 const std::function<void()>& describe);
// What config.toml of the directory holds.
std::string written_config(const RunDirectory& directory);
// The log of another process than the first: messages only, output.<process>.log. Throws InputError
// if config.toml is not here as process 0 `wrote` it: all processes need one file system.
LoggerOptions open_log_of(int process, const RunConfig& config, const OpenedRun& opened,
                          const std::string& wrote);

// What a run writes while it trains.
struct RunFiles {
  // A checkpoint gets its name when the steps before it are in the log on the disk: one that is
  // resumed has no gap there. That is waited for ten seconds; then the save says so. `processes`,
  // if there are several, outlives this object.
  RunFiles(const RunConfig& config, OpenedRun run, const LoggerOptions& logging,
           ProcessGroup* processes = nullptr);

  OpenedRun opened;
  Logger logger;
  CheckpointSaver saver;
};

}  // namespace muo::app
