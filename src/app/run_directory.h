#pragma once

#include <filesystem>
#include <string>

#include "app/options.h"

namespace muo {

// <root>/config.toml, <root>/metrics.jsonl, <root>/checkpoints/step_00000100/
struct RunDirectory {
  std::filesystem::path root;
  std::filesystem::path resume;  // checkpoint to continue from; empty: from the start

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }
  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }
};

// Which directory a run will use, without touching the disk. Without --resume: --out, or
// runs/<UTC date>-<time>-<pid>; a directory that holds a run already is refused.
// --resume DIR: a run directory (its newest checkpoint) or a checkpoint: its run goes on, or, with
// another --out, a new run starts from it. --resume auto: the newest checkpoint of --out, or of the
// newest run in runs/; none there: from the start. Throws InputError.
RunDirectory find_run_directory(const TrainOptions& options);

// Makes the directories and writes config.toml. Throws InputError if that is impossible.
void create_run_directory(const RunDirectory& run, const TrainOptions& resolved);

// The newest complete checkpoint of a run directory, or `path` itself if it is a checkpoint; empty:
// none. A checkpoint is a directory step_<number>: they get their names when they are whole.
std::filesystem::path newest_checkpoint(const std::filesystem::path& path);

}  // namespace muo
