#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/checkpoint_files.h"

namespace muo::app {

// How a save ended.
struct SaveResult {
  std::int64_t step = 0;
  std::string failure;          // empty: the checkpoint is on the disk
  bool is_write_error = false;  // of the disk, not of what was to be written
  int failed_rank = -1;         // -1: none, or it is not known which
  std::int64_t bytes = 0;
  double seconds = 0;              // until it was on the disk
  std::vector<std::string> notes;  // of pruning
};

// What processes of a world say to each other of saves is text, of one version of this program.
std::string pack_results(std::span<const SaveResult> results);
std::vector<SaveResult> unpack_results(std::string_view text);

// What a process says while they save together, so far as it has something to say.
struct SaveMessage {
  SaveResult result = {};
  std::vector<CheckpointRange> ranges = {};  // that it will write
  CheckpointPlan plan = {};
  CheckpointSums sums = {};
};
std::string pack_message(const SaveMessage& message);
SaveMessage unpack_message(std::string_view text);

}  // namespace muo::app
