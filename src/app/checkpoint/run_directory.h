#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "app/options/options.h"
#include "base/durable_files.h"

namespace muo::app {

// <root>/config.toml, <root>/run.json, <root>/metrics.jsonl, <root>/events.out.tfevents.*,
// <root>/checkpoints/step_00000100/, <root>/run.lock
struct RunDirectory {
  std::filesystem::path root;
  // What to continue from: a checkpoint, or a run directory whose newest one counts; empty: from
  // the start. With --resume auto that run may turn out to have no checkpoint yet.
  std::filesystem::path resume;
  std::filesystem::path resumed = {};  // the run that `resume` is of; empty: a checkpoint alone

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }
  [[nodiscard]] std::filesystem::path facts() const { return root / "run.json"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

// "20261123-183357-4711": UTC and this process, for a directory that nobody has named.
std::string dated_name();

// When a file was written; empty: there is none.
std::optional<std::filesystem::file_time_type> written_at(const std::filesystem::path& file);
// The entry of a folder with the latest `time`, of those that have one the last by name; empty:
// none.
std::filesystem::path newest_in(const std::filesystem::path& folder,
                                const std::function<std::optional<std::filesystem::file_time_type>(
                                    const std::filesystem::path& entry)>& time);

// Which directory a run will use, without touching the disk. Without --resume: --out, or
// runs/<UTC date>-<time>-<pid>; a directory that holds a run already is refused.
// --resume DIR: a run directory or a checkpoint: its run goes on, or, with another --out, a new run
// starts from it. --resume auto: the run in --out, or the one in runs/ that was saved last;
// none there: from the start. Throws InputError.
RunDirectory find_run_directory(const TrainOptions& options);
// The folder that its directory will lie in, the same in all processes of a run.
std::filesystem::path folder_of_run(const TrainOptions& options);

// Keeps other processes from training in the same directory until it, or this process, ends; holds
// nothing where there is no directory yet. Throws InputError naming the process that is there, and
// WriteError.
FileLock lock_run_directory(const RunDirectory& run);

// Makes the directories, locks them if `lock` holds nothing, and writes config.toml. Throws
// WriteError, and InputError if another process is there.
void create_run_directory(const RunDirectory& run, const TrainOptions& resolved, FileLock& lock);

}  // namespace muo::app
