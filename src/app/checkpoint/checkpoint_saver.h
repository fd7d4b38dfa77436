#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_pruning.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"

namespace muo {

// How a save ended.
struct SaveResult {
  std::int64_t step = 0;
  std::string failure;  // empty: the checkpoint is on the disk
  int failed_rank = -1;
  std::int64_t bytes = 0;
  double seconds = 0;              // until it was on the disk
  std::vector<std::string> notes;  // of pruning
};
// Ends this rank if the save failed: an Error where it failed, a PeerFailed elsewhere.
void throw_failure(const RankContext& rank, const SaveResult& result);

// Writes checkpoints of one run (checkpoint_files.h says how); one object, shared by the ranks,
// which write their own parts at the same time. If anything fails on any of them, the temporary
// directory is removed, and older checkpoints are as they were.
class CheckpointSaver {
 public:
  class Staging;

  CheckpointSaver(const std::filesystem::path& run, int world, const KeepCheckpoints& keep = {});
  // After the ranks have ended.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective: every rank calls it with the same `info` and its own entries. Reads the values on
  // rank.compute, after the work enqueued there; on return they may change, and the checkpoint is
  // on the disk, or it failed; take_results() tells. Memory: 4 MiB per rank.
  void write(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries);
  // The same, and throw_failure().
  void save(const RankContext& rank, const CheckpointInfo& info,
            std::span<const StateEntry> entries);

  // Collective: as write(), but returns when the values are copied; threads of this object, at low
  // priority, write the files. First waits for the save before this one.
  void start(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries, Staging& staging);
  // Until no save is under way. Its writers' heartbeats are this rank's, so that the watchdog
  // sees a disk that does not answer.
  void wait();
  // Of saves that have ended since the last call, in order. One rank calls, where no other can be
  // in a save (a barrier's leader).
  [[nodiscard]] std::vector<SaveResult> take_results();

  // A checkpoint of this run that was read and verified: see CheckpointPruning. Before the first
  // save.
  void mark_verified(std::int64_t step);

  // For tests of failures: called before each change of the file system with a word for it, by all
  // writing threads. An exception that it throws is a failure of that change.
  void on_change(std::function<void(std::string_view change)> hook);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Memory of one rank that start() copies into, allocated before the device is sealed. It is not
// freed under a writer: the destructor waits a little, then makes the save fail.
class CheckpointSaver::Staging {
 public:
  Staging(CheckpointSaver& saver, const RankContext& rank, std::span<const StateEntry> entries);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // What it takes, for the entries that this rank writes.
  [[nodiscard]] static std::int64_t bytes(std::span<const StateEntry> entries);

 private:
  friend class CheckpointSaver;
  CheckpointSaver& saver_;
  std::unique_ptr<Buffer> memory_;
};

}  // namespace muo
