#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/durable_files.h"
#include "trainer/options/options.h"

namespace muo::trainer {

// <root>/config.toml, <root>/run.json, <root>/metrics.jsonl, <root>/events.out.tfevents.*,
// <root>/checkpoints/step_00000100/, <root>/run.lock
struct RunDirectory {
  std::filesystem::path root;
  // The checkpoint to resume from, or a run directory, of which the newest is resumed; empty: start
  // from step 0. With --resume auto the run may have no checkpoint yet.
  std::filesystem::path resume;
  std::filesystem::path resumed = {};  // the run of `resume`; empty: the checkpoint is in no run

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }
  [[nodiscard]] std::filesystem::path facts() const { return root / "run.json"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

// Returns a default name for a directory, from the UTC time and the pid: "20261123-183357-4711".
std::string dated_name();

// Returns when a file was written; empty if it does not exist.
std::optional<std::filesystem::file_time_type> written_at(const std::filesystem::path& file);
// Returns the entry of a folder with the latest `time`, and among equal times the last by name.
// Ignores entries without a time. Empty if there is none.
std::filesystem::path newest_in(const std::filesystem::path& folder,
                                const std::function<std::optional<std::filesystem::file_time_type>(
                                    const std::filesystem::path& entry)>& time);

// Returns the directory that a run will use, without creating it. Without --resume this is --out,
// or runs/<UTC date>-<time>-<pid>, which must not hold a run. With --resume DIR, a run directory or
// a checkpoint, it is that run's directory, or, with another --out, a new one. With --resume auto
// it is the run in --out, or the most recently saved run in runs/; if there is none, the run starts
// from step 0. Throws InputError.
RunDirectory find_run_directory(const TrainOptions& options);
// Returns the folder that will contain the run's directory; the same in all processes of a run.
std::filesystem::path folder_of_run(const TrainOptions& options);

// Keeps other processes from training in the directory while the lock exists. Returns an empty lock
// if the directory does not exist yet. Throws InputError naming the process that holds the lock,
// and WriteError.
FileLock lock_run_directory(const RunDirectory& run);

// Creates the directories, locks them if `lock` is empty, and writes config.toml. Throws
// WriteError, and InputError if another process holds the lock.
void create_run_directory(const RunDirectory& run, const TrainOptions& resolved, FileLock& lock);

}  // namespace muo::trainer
