#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/comm/process_group.h"
#include "runtime/device_group.h"
#include "runtime/parameter.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/checkpoint_pruning.h"
#include "trainer/checkpoint/save_messages.h"

namespace muo::trainer {

// Throws if the save failed: Error or WriteError on the rank where it failed, PeerFailed elsewhere.
void throw_failure(const RankContext& rank, const SaveResult& result);

// Writes the checkpoints of one run, using CheckpointFiles. The ranks share one object and write
// their own ranges of the tensors concurrently. If anything fails on any rank, the temporary
// directory is removed and older checkpoints are unchanged.
//
// With several processes, all ranks write the same files, which all hosts must see. Each process
// has one object; process 0 creates, commits and prunes. The processes communicate on
// Channel::kSaves, so only one run may save at a time. If the process group fails, the save fails.
// A failing process must call ProcessGroup::fail() before it destroys this object, because the
// writers may be waiting for other processes.
class CheckpointSaver {
 public:
  class Staging;

  // `run` and `keep` are used in process 0 only. `processes` must outlive this object; null: this
  // is the only process.
  CheckpointSaver(const std::filesystem::path& run, int world, const KeepCheckpoints& keep = {},
                  ProcessGroup* processes = nullptr);
  // Precondition: the rank threads have ended.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective: every rank calls it with the same `info` and its own entries. Reads the values on
  // rank.compute, after the work enqueued there. On return the values may change, and the save has
  // succeeded or failed: take_results() returns the result. Uses 4 MiB of memory per rank, and 6
  // MiB more for split masters.
  void write(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries);
  // Calls write() and throw_failure().
  void save(const RankContext& rank, const CheckpointInfo& info,
            std::span<const StateEntry> entries);

  // Collective: like write(), but returns as soon as the values are copied; low-priority threads of
  // this object write the files. First waits for the previous save of this object and for any save
  // that still reads from `staging`.
  void start(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries, Staging& staging);
  // Waits until no save is in progress. While waiting, forwards the writers' heartbeats as this
  // rank's, so that the watchdog detects a disk that does not respond.
  void wait();
  [[nodiscard]] bool is_saving() const;
  // Returns, in order, the results of saves that have ended since the last call. Call it from one
  // rank while no other rank can be in a save (as a barrier's leader). Several processes learn at
  // different times that a save has ended; therefore each calls this, and all use the list of
  // process 0, which broadcasts it (pack_results()).
  [[nodiscard]] std::vector<SaveResult> take_results();

  // Marks a checkpoint of this run that was read and verified, for CheckpointPruning. Call this
  // before the first save.
  void mark_verified(std::int64_t step) { pruning_.mark_verified(step); }

  // Sets a function that one thread of process 0 calls before the rename of each checkpoint. If it
  // returns a non-empty text, the text becomes a note of that save. Call this before the first
  // save.
  void before_commit(std::function<std::string()> hook) { before_commit_ = std::move(hook); }

  // Sets CheckpointFiles::hook, for tests of failures.
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
  // Communication between processes. In process 0, gather() returns all messages, in the others
  // none. broadcast() returns the message of process 0, or nothing if process 0 failed.
  std::vector<SaveMessage> gather(std::string_view site, const SaveMessage& mine);
  std::optional<SaveMessage> broadcast(std::string_view site, const SaveMessage& mine);
  bool communicate(const Action& exchange);
  [[nodiscard]] std::size_t index(const RankContext& rank) const;
  void write_chunks(std::span<const StateEntry> entries,
                    const std::function<Tensor(const Tensor& chunk)>& on_host);
  void submit(const CheckpointInfo& info);
  void work(std::size_t local);
  void detach(std::size_t local);  // waits for the save, then forgets the rank's staging memory
  void release(const Staging& staging) noexcept;

  const int world_;
  ProcessGroup* const processes_;  // null: this is the only process
  const RankRange ranks_;          // this process's ranks, which index the tables below
  CheckpointFiles files_;
  CheckpointPruning pruning_;
  std::function<std::string()> before_commit_;

  // State of the save in progress. Ranks and writers pass a barrier before they change members that
  // others read.
  std::vector<std::span<const StateEntry>> entries_;  // [local rank]
  bool begun_ = false;
  std::atomic<bool> communicating_ = false;  // with other processes
  Clock::time_point started_;
  std::mutex failure_mutex_;
  SaveResult result_;

  // State of background saves. From the first start() on, each rank has a writer thread.
  std::vector<std::vector<StateEntry>> staged_;  // [local rank]; the values are in its Staging
  std::vector<Staging*> stagings_;               // [local rank]; null: none
  std::vector<std::thread> threads_;
  Rendezvous writers_;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  CheckpointInfo info_;
  std::uint64_t jobs_ = 0;  // saves submitted
  bool busy_ = false, end_ = false;
  std::vector<SaveResult> results_;
};

// Memory of one rank for the copies that start() makes, allocated before the device is sealed.
// Savers of several runs may use it one after another. It is not freed while a writer reads it: the
// destructor waits for three seconds, then cancels the save.
class CheckpointSaver::Staging {
 public:
  Staging(const RankContext& rank, std::span<const StateEntry> entries);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Bytes of memory needed for the entries that this rank writes.
  [[nodiscard]] static std::int64_t bytes(std::span<const StateEntry> entries);

 private:
  friend class CheckpointSaver;
  CheckpointSaver* user_ = nullptr;  // last user; null if destroyed
  std::unique_ptr<Buffer> memory_;
};

}  // namespace muo::trainer
