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
  // Resume from this checkpoint, or from the newest in this run directory; empty: from the start.
  // With --resume auto the run may have no checkpoint yet.
  std::filesystem::path resume;
  std::filesystem::path resumed = {};  // the run of `resume`; empty: a checkpoint outside a run

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }
  [[nodiscard]] std::filesystem::path facts() const { return root / "run.json"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

// Returns a default name of a directory, from UTC and this process's pid: "20261123-183357-4711".
std::string dated_name();

// Returns when a file was written; empty if it does not exist.
std::optional<std::filesystem::file_time_type> written_at(const std::filesystem::path& file);
// Returns the entry of a folder with the latest `time`, ignoring entries without one; of equals the
// last by name. Empty if there is none.
std::filesystem::path newest_in(const std::filesystem::path& folder,
                                const std::function<std::optional<std::filesystem::file_time_type>(
                                    const std::filesystem::path& entry)>& time);

// Returns the directory that a run will use, without creating it. Without --resume it is --out, or
// runs/<UTC date>-<time>-<pid>; it must not hold a run. With --resume DIR, a run directory or a
// checkpoint, its run continues, or, with another --out, a new run starts from it. With --resume
// auto it is the run in --out, or the most recently saved one in runs/; if there is none, the run
// starts from the beginning. Throws InputError.
RunDirectory find_run_directory(const TrainOptions& options);
// Returns the folder that will contain the run's directory; the same in all processes of a run.
std::filesystem::path folder_of_run(const TrainOptions& options);

// Keeps other processes from training in the directory while the lock exists. Returns an empty lock
// if there is no directory yet. Throws InputError with the process that holds the lock, and
// WriteError.
FileLock lock_run_directory(const RunDirectory& run);

// Creates the directories, locks them if `lock` is empty, and writes config.toml. Throws
// WriteError, and InputError if another process holds the lock.
void create_run_directory(const RunDirectory& run, const TrainOptions& resolved, FileLock& lock);

}  // namespace muo::trainer
