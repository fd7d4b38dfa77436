#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/checkpoint_files.h"
#include "app/checkpoint/checkpoint_pruning.h"
#include "app/checkpoint/save_messages.h"
#include "runtime/comm/process_group.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"

namespace muo::app {

// Ends this rank if the save failed: an Error, or WriteError, where it failed, a PeerFailed
// elsewhere.
void throw_failure(const RankContext& rank, const SaveResult& result);

// Writes checkpoints of one run (checkpoint_files.h says how); one object, shared by the ranks,
// which write their own ranges of the tensors at the same time. If anything fails on any of them,
// the temporary directory is removed, and older checkpoints are as they were.
//
// Ranks of several processes save the same files, which all have to see: each process has such an
// object, and process 0 makes, commits and prunes. The objects meet on Channel::kSaves, so that
// one run at a time saves. If the group fails, the save does. A process that fails calls
// ProcessGroup::fail() before it destroys this object, whose writers may wait for the others.
class CheckpointSaver {
 public:
  class Staging;

  // `run` and `keep` count in process 0. `processes`, if there are several, outlives this object.
  CheckpointSaver(const std::filesystem::path& run, int world, const KeepCheckpoints& keep = {},
                  ProcessGroup* processes = nullptr);
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
  // in a save (a barrier's leader). Of several processes, which hear at different moments that a
  // save has ended, all call it, and all act on what process 0 got: it sends its list
  // (pack_results) when they meet.
  [[nodiscard]] std::vector<SaveResult> take_results();

  // A checkpoint of this run that was read and verified: see CheckpointPruning. Before the first
  // save.
  void mark_verified(std::int64_t step) { pruning_.mark_verified(step); }

  // Called before a checkpoint gets its name, by one thread, in process 0; what it returns, if not
  // empty, is a note of that save. Before the first save.
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
  void record(int rank, const std::exception& error);
  [[nodiscard]] std::vector<CheckpointRange> local_ranges() const;
  void make_files(std::int64_t step, std::vector<CheckpointRange> ranges);
  void begin_together(int rank, std::int64_t step);
  void commit(CheckpointInfo info);
  void end(int rank, const CheckpointInfo& info);
  void end_together(int rank, const CheckpointInfo& info);
  // Meetings of processes: what all say, in process 0; what process 0 says, nothing if they failed.
  std::vector<SaveMessage> gather(std::string_view site, const SaveMessage& mine);
  std::optional<SaveMessage> announce(std::string_view site, const SaveMessage& mine);
  bool meet(const Action& meeting);
  [[nodiscard]] std::size_t index(const RankContext& rank) const;
  void write_chunks(std::span<const StateEntry> entries,
                    const std::function<Tensor(const Tensor& chunk)>& on_host);
  void hand_over(const CheckpointInfo& info);
  void work(std::size_t local);
  void let_go(std::size_t local);  // of its staging memory, when what it holds is written
  void release(const Staging& staging) noexcept;

  const int world_;
  ProcessGroup* const processes_;  // null: this is the only one
  const RankRange ranks_;          // of this process; tables below are of these
  CheckpointFiles files_;
  CheckpointPruning pruning_;
  std::function<std::string()> before_commit_;

  // Of the save under way. Its ranks, or its writers, meet before they touch what others read.
  std::vector<std::span<const StateEntry>> entries_;  // [local rank]
  bool begun_ = false;
  std::atomic<bool> meeting_ = false;  // of processes
  Clock::time_point started_;
  std::mutex failure_mutex_;
  SaveResult result_;

  // The background. A writer is a thread for each rank, from the first start() on.
  std::vector<std::vector<StateEntry>> staged_;  // [local rank], values in its Staging
  std::vector<Staging*> stagings_;               // [local rank], null: none
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

}  // namespace muo::app
