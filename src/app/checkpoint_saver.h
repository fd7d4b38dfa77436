#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "app/checkpoint.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"

namespace muo {

// Writes checkpoints of one run; one object, shared by the ranks. All goes into a temporary
// directory (".step_00000100.tmp-PID"), every rank writing its own parts in place, and appears
// under its name by one rename after everything is on the disk: whenever the program dies, readers
// find a whole checkpoint or none. A checkpoint of the same step is replaced in that same moment.
class CheckpointSaver {
 public:
  CheckpointSaver(std::filesystem::path run, int world);
  ~CheckpointSaver();  // after the ranks have ended; removes what an interrupted save left
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective: every rank calls it with the same `info` and its own entries. Reads the values on
  // rank.compute, after the work enqueued there; on return they may change, and the checkpoint is
  // on the disk. If anything fails on any rank, the temporary directory is removed, older
  // checkpoints are as they were, and every rank throws the same text: an Error where it failed, a
  // PeerFailed elsewhere. It fails also if the writers' entries do not cover each tensor exactly
  // once. Memory: 4 MiB per rank. Removes what savers of processes that no longer exist have left
  // behind.
  void save(const RankContext& rank, const CheckpointInfo& info,
            std::span<const StateEntry> entries);

  // For tests of failures: called before each change of the file system with a word for it, by all
  // ranks' threads. An exception that it throws is a failure of that change.
  void on_change(std::function<void(std::string_view change)> hook);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muo
