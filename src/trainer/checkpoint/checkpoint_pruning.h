#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/checkpoint_files.h"

namespace muo::trainer {

// Which checkpoints of a run are kept.
struct KeepCheckpoints {
  std::int64_t last = 0;   // number of newest checkpoints; 0: all
  std::int64_t every = 0;  // also checkpoints of steps divisible by this; 0: none
};

// Removes older checkpoints of one run.
class CheckpointPruning {
 public:
  CheckpointPruning(std::filesystem::path run, const KeepCheckpoints& keep,
                    HiddenName name = HiddenName::kPid);

  // Marks the checkpoint of this step as complete: it was just written, or read and verified.
  void mark_verified(std::int64_t step) { good_.insert(step); }
  // Removes checkpoints older than the newest keep.last verified ones up to `step`, except those
  // that keep.every retains. A checkpoint counts as verified if it was marked, or if verifying it
  // now succeeds. Damaged checkpoints are neither counted nor removed. Returns one line for each
  // checkpoint that could not be removed. `change` is CheckpointFiles::change().
  std::vector<std::string> prune(std::int64_t step,
                                 const std::function<void(std::string_view)>& change);

 private:
  [[nodiscard]] bool verified(const std::filesystem::path& path, std::int64_t step);

  const std::filesystem::path run_;
  const KeepCheckpoints keep_;
  const HiddenName name_;
  std::set<std::int64_t> good_, bad_;
};

}  // namespace muo::trainer
