#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/checkpoint_files.h"

namespace muo::trainer {

// Result of a save.
struct SaveResult {
  std::int64_t step = 0;
  std::string failure;          // empty: the checkpoint is on disk
  bool is_write_error = false;  // the disk failed, rather than the data to write
  int failed_rank = -1;         // -1: none, or unknown
  std::int64_t bytes = 0;
  double seconds = 0;              // time until the checkpoint was on disk
  std::vector<std::string> notes;  // from pruning and the before_commit() hook
};

// Messages between processes of a world are text. They are exchanged only within one version of
// this program.
std::string pack_results(std::span<const SaveResult> results);
std::vector<SaveResult> unpack_results(std::string_view text);

// The message of one process in a save by several processes; unused fields are empty.
struct SaveMessage {
  SaveResult result = {};
  std::vector<CheckpointRange> ranges = {};  // ranges that the process will write
  CheckpointPlan plan = {};
  CheckpointSums sums = {};
};
std::string pack_message(const SaveMessage& message);
SaveMessage unpack_message(std::string_view text);

}  // namespace muo::trainer
