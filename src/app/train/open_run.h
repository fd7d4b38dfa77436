#pragma once

#include <cstdint>
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

namespace muo {

// Where a run lies on the disk, and what it goes on from.
struct OpenedRun {
  RunDirectory directory;
  FileLock lock;                        // of the directory, if there was one
  std::optional<Checkpoint> resume;     // none: from the start,
  std::optional<Checkpoint> init_from;  // with these weights; none: with new ones
  LostWork lost;                        // of `resume`'s step
  std::vector<std::string> notes;       // what the user should know

  [[nodiscard]] std::int64_t first_step() const { return resume ? resume->info().step : 0; }
};

// Nothing is written. Throws InputError, and WriteError if the directory cannot be locked.
OpenedRun open_run(const RunConfig& config, const Corpus& corpus);

// The same for the other processes of a world: process 0 opens the run and tells them where.
std::string opened_text(const OpenedRun& opened);
OpenedRun open_as_told(const std::string& text, const RunConfig& config, const Corpus& corpus);

// A checkpoint gets its name when the steps before it are in the run's log on the disk: one that is
// resumed has no gap there. That is waited for ten seconds; then the save says so.
void log_before_saves(CheckpointSaver& saver, Logger& logger);

// What a run's logger and saver are made with; makes the event file for TensorBoard.
LoggerOptions open_log(const RunConfig& config, const RunDirectory& directory,
                       std::int64_t first_step, double peak_flops);
KeepCheckpoints keep_checkpoints(const SaveOptions& options);
// What config.toml of the directory holds.
std::string written_config(const RunDirectory& directory);
// The log of another process than the first: messages only, output.<process>.log. Throws InputError
// if config.toml is not here as process 0 `wrote` it: all processes need one file system.
LoggerOptions open_log_of(int process, const RunConfig& config, const OpenedRun& run_at,
                          const std::string& wrote);

}  // namespace muo
