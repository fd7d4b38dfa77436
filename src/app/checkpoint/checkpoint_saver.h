#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_files.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"

namespace muo {

// Which checkpoints of a run stay.
struct KeepCheckpoints {
  std::int64_t last = 0;   // the newest ones; 0: all
  std::int64_t every = 0;  // and those of steps that this divides; 0: none
};

// Removes older checkpoints of one run.
class CheckpointPruning {
 public:
  CheckpointPruning(std::filesystem::path run, const KeepCheckpoints& keep);

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
  std::set<std::int64_t> good_, bad_;
};

// How a save ended.
struct SaveResult {
  std::int64_t step = 0;
  std::string failure;          // empty: the checkpoint is on the disk
  bool is_write_error = false;  // of the disk, not of what was to be written
  int failed_rank = -1;
  std::int64_t bytes = 0;
  double seconds = 0;              // until it was on the disk
  std::vector<std::string> notes;  // of pruning
};
// Ends this rank if the save failed: an Error, or WriteError, where it failed, a PeerFailed
// elsewhere.
void throw_failure(const RankContext& rank, const SaveResult& result);

// Writes checkpoints of one run (checkpoint_files.h says how); one object, shared by the ranks,
// which write their own ranges of the tensors at the same time. If anything fails on any of them,
// the temporary directory is removed, and older checkpoints are as they were.
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
  // on the disk, or it failed; take_results() tells. Memory: 4 MiB per rank, and 6 more for split
  // masters.
  void write(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries);
  // The same, and throw_failure().
  void save(const RankContext& rank, const CheckpointInfo& info,
            std::span<const StateEntry> entries);

  // Collective: as write(), but returns when the values are copied; threads of this object, at low
  // priority, write the files. First waits for the save before this one, of this object or from
  // this memory.
  void start(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries, Staging& staging);
  // Until no save is under way. Its writers' heartbeats are this rank's, so that the watchdog
  // sees a disk that does not answer.
  void wait();
  [[nodiscard]] bool is_saving() const;
  // Of saves that have ended since the last call, in order. One rank calls, where no other can be
  // in a save (a barrier's leader).
  [[nodiscard]] std::vector<SaveResult> take_results();

  // A checkpoint of this run that was read and verified: see CheckpointPruning. Before the first
  // save.
  void mark_verified(std::int64_t step) { pruning_.mark_verified(step); }

  // Called before a checkpoint gets its name, by one thread; what it returns, if not empty, is a
  // note of that save. Before the first save.
  void before_commit(std::function<std::string()> hook) { before_commit_ = std::move(hook); }

  // For tests of failures: called before each change of the file system with a word for it, by all
  // writing threads. An exception that it throws is a failure of that change.
  void on_change(std::function<void(std::string_view change)> hook) {
    files_.hook = std::move(hook);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Action = std::function<void()>;
  void save_together(int rank, Rendezvous& barrier, const CheckpointInfo& info,
                     const Action& write_mine);
  void attempt(int rank, const Action& action);
  void begin(const CheckpointInfo& info);
  void end(CheckpointInfo info);
  void write_chunks(std::span<const StateEntry> entries,
                    const std::function<Tensor(const Tensor& chunk)>& on_host);
  void hand_over(const CheckpointInfo& info);
  void work(int rank);
  void let_go(int rank);  // of its staging memory, when what it holds is written
  void release(const Staging& staging) noexcept;

  CheckpointFiles files_;
  CheckpointPruning pruning_;
  std::function<std::string()> before_commit_;

  // Of the save under way. Its ranks, or its writers, meet before they touch what others read.
  std::vector<std::span<const StateEntry>> entries_;  // [rank]
  bool begun_ = false;
  Clock::time_point started_;
  std::mutex failure_mutex_;
  SaveResult result_;

  // The background. A writer is a thread for each rank, from the first start() on.
  std::vector<std::vector<StateEntry>> staged_;  // [rank], values in its Staging
  std::vector<Staging*> stagings_;               // [rank], null: none
  std::vector<std::thread> threads_;
  Rendezvous writers_;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  CheckpointInfo info_;
  std::uint64_t jobs_ = 0;  // handed over
  bool busy_ = false, end_ = false;
  std::vector<SaveResult> results_;
};

// Memory of one rank that start() copies into, allocated before the device is sealed; savers of
// several runs may use it one after another. It is not freed under a writer: the destructor waits a
// little, then makes the save fail.
class CheckpointSaver::Staging {
 public:
  Staging(const RankContext& rank, std::span<const StateEntry> entries);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // What it takes, for the entries that this rank writes.
  [[nodiscard]] static std::int64_t bytes(std::span<const StateEntry> entries);

 private:
  friend class CheckpointSaver;
  CheckpointSaver* user_ = nullptr;  // the last, if it is still there
  std::unique_ptr<Buffer> memory_;
};

}  // namespace muo
