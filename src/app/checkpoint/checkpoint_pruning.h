#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/checkpoint_files.h"

namespace muo::app {

// Which checkpoints of a run stay.
struct KeepCheckpoints {
  std::int64_t last = 0;   // the newest ones; 0: all
  std::int64_t every = 0;  // and those of steps that this divides; 0: none
};

// Removes older checkpoints of one run.
class CheckpointPruning {
 public:
  CheckpointPruning(std::filesystem::path run, const KeepCheckpoints& keep,
                    HiddenName name = HiddenName::kPid);

  // The checkpoint of this step is whole: it was just written, or read and verified.
  void mark_verified(std::int64_t step) { good_.insert(step); }
  // Removes what is older than the newest keep.last *verified* checkpoints up to `step` and not to
  // be kept: those marked, or that verify now. What is not whole is neither counted nor touched.
  // One line for each that could not be removed. `change`: as in CheckpointFiles.
  std::vector<std::string> prune(std::int64_t step,
                                 const std::function<void(std::string_view)>& change);

 private:
  [[nodiscard]] bool verified(const std::filesystem::path& path, std::int64_t step);

  const std::filesystem::path run_;
  const KeepCheckpoints keep_;
  const HiddenName name_;
  std::set<std::int64_t> good_, bad_;
};

}  // namespace muo::app
