#include "trainer/checkpoint/checkpoint_pruning.h"

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "trainer/checkpoint/checkpoint.h"

namespace muo::trainer {
namespace {

namespace fs = std::filesystem;

// Renames the directory first, so that a partly removed one never looks like a checkpoint. The next
// save removes leftovers (CheckpointFiles::begin()).
void remove_checkpoint(const fs::path& path, HiddenName name) {
  const fs::path hidden = hidden_beside(path, "old", name);
  fs::rename(path, hidden);
  sync_directory(path.parent_path());  // before its files are removed
  fs::remove_all(hidden);
}

bool opens(const fs::path& path, bool verify) {
  try {
    const Checkpoint checkpoint(path, {.verify = verify});
    return true;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

CheckpointPruning::CheckpointPruning(fs::path run, const KeepCheckpoints& keep, HiddenName name)
    : run_(std::move(run)), keep_(keep), name_(name) {}

// Remembers the result, so that the files of each checkpoint are read at most once.
bool CheckpointPruning::verified(const fs::path& path, std::int64_t step) {
  if (good_.contains(step)) return true;
  if (bad_.contains(step)) return false;
  const bool good = opens(path, /*verify=*/true);
  (good ? good_ : bad_).insert(step);
  return good;
}

std::vector<std::string> CheckpointPruning::prune(
    std::int64_t step, const std::function<void(std::string_view)>& change) {
  std::vector<std::string> notes;
  if (keep_.last == 0) return notes;
  std::int64_t kept = 0;
  for (const FoundCheckpoint& found : find_checkpoints(run_)) {  // newest first
    if (found.step > step) continue;
    if (kept < keep_.last) {
      kept += verified(found.path, found.step) ? 1 : 0;
      continue;
    }
    if (keep_.every > 0 && found.step % keep_.every == 0) continue;
    if (!good_.contains(found.step) && !opens(found.path, /*verify=*/false)) continue;
    try {
      change("remove an old checkpoint");
      remove_checkpoint(found.path, name_);
      good_.erase(found.step);
    } catch (const std::exception& error) {
      notes.push_back(
          concat("old checkpoint ", found.path.string(), " is not removed: ", error.what()));
    }
  }
  return notes;
}

}  // namespace muo::trainer
