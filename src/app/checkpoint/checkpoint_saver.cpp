#include "app/checkpoint/checkpoint_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "app/checkpoint/checkpoint_files.h"
#include "base/check.h"
#include "base/signals_blocked.h"

namespace muo {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kChunkBytes = 4 << 20;  // between two heartbeats

// Training goes first. On Linux a thread has a priority of its own.
void lower_priority() {
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10));
}

std::int64_t staged_bytes(const StateEntry& entry) {
  return entry.writer ? (entry.values.bytes() + kAlignment - 1) / kAlignment * kAlignment : 0;
}

// The parts of `entry` that fit into a chunk, in order: take(first element of the entry, elements).
template <class Take>
void for_each_chunk(const StateEntry& entry, const Take& take) {
  const std::int64_t most = kChunkBytes / size_of(entry.values.dtype);
  const std::int64_t count = entry.values.numel();
  for (std::int64_t at = 0; at < count; at += most)
    take(at, std::min(most, count - at));
}

}  // namespace

class CheckpointSaver::Impl {
 public:
  Impl(const fs::path& run, int world, const KeepCheckpoints& keep)
      : files(run),
        pruning(run, keep),
        parts_(static_cast<std::size_t>(world)),
        staged_(static_cast<std::size_t>(world)),
        writers_(world) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void write(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries);
  void start(const RankContext& rank, const CheckpointInfo& info,
             std::span<const StateEntry> entries, const Tensor& memory);
  void wait();
  void release() noexcept;
  std::vector<SaveResult> take_results();
  [[nodiscard]] const SaveResult& last_result() const { return result_; }

  CheckpointFiles files;
  CheckpointPruning pruning;

 private:
  template <class WriteMine>
  void save_together(int rank, Rendezvous& barrier, const CheckpointInfo& info,
                     const WriteMine& write_mine);
  template <class Action>
  void attempt(int rank, const Action& action);
  void begin(const CheckpointInfo& info);
  void end(CheckpointInfo info);
  void set_parts(int rank, std::span<const StateEntry> entries);
  void hand_over(const CheckpointInfo& info);
  void work(int rank);

  // Of the save under way. Its ranks, or its writers, meet before they touch what others read.
  std::vector<std::vector<CheckpointPart>> parts_;  // [rank]
  bool begun_ = false;
  Clock::time_point started_;
  std::mutex failure_mutex_;
  SaveResult result_;

  // The background. A writer is a thread for each rank, from the first start() on.
  std::vector<std::vector<StateEntry>> staged_;  // [rank], values in its Staging
  std::vector<std::thread> threads_;
  Rendezvous writers_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  CheckpointInfo info_;
  std::uint64_t jobs_ = 0;  // handed over
  bool busy_ = false, end_ = false;
  std::vector<SaveResult> results_;
};

template <class Action>
void CheckpointSaver::Impl::attempt(int rank, const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_mutex_);
    if (!result_.failure.empty()) return;
    result_.failure = concat("checkpoint of step ", result_.step, " not saved: ", error.what());
    result_.failed_rank = rank;
  }
}

// All meet twice: before, the leader knows what each of them will write and makes the files; after,
// it knows that all have written. No rank may leave early, so failures wait for the end.
template <class WriteMine>
void CheckpointSaver::Impl::save_together(int rank, Rendezvous& barrier, const CheckpointInfo& info,
                                          const WriteMine& write_mine) {
  const auto start = [&] {
    result_ = {};
    result_.step = info.step;
    started_ = Clock::now();
    begun_ = false;
    attempt(rank, [&] { begin(info); });
  };
  const auto finish = [&] {
    if (result_.failure.empty()) attempt(rank, [&] { end(info); });
    files.abandon();
    result_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    const std::lock_guard lock(mutex_);
    results_.push_back(result_);
    busy_ = false;
    changed_.notify_all();
  };
  barrier.arrive(start, "checkpoint save");
  if (begun_) attempt(rank, write_mine);
  barrier.arrive(finish, "checkpoint save");
}

void CheckpointSaver::Impl::begin(const CheckpointInfo& info) {
  std::vector<CheckpointPart> all;
  for (const std::vector<CheckpointPart>& part : parts_)
    all.insert(all.end(), part.begin(), part.end());
  for (const CheckpointPart& part : all)
    result_.bytes += (part.end - part.begin) * size_of(part.spec.dtype);
  files.begin(info.step, std::move(all));
  begun_ = true;
}

void CheckpointSaver::Impl::end(CheckpointInfo info) {
  info.world = static_cast<int>(parts_.size());
  const std::int64_t step = info.step;
  files.commit(std::move(info));
  pruning.mark_verified(step);
  try {
    result_.notes = pruning.prune(step, [this](std::string_view what) { files.change(what); });
  } catch (const std::exception& error) {  // the checkpoint is saved nevertheless
    result_.notes.push_back(concat("old checkpoints are not removed: ", error.what()));
  }
}

void CheckpointSaver::Impl::set_parts(int rank, std::span<const StateEntry> entries) {
  std::vector<CheckpointPart>& mine = parts_[static_cast<std::size_t>(rank)];
  mine.clear();
  for (const StateEntry& entry : entries)
    if (entry.writer)
      mine.push_back(
          {.spec = {.name = entry.name, .dtype = entry.values.dtype, .shape = entry.shape},
           .begin = entry.begin,
           .end = entry.begin + entry.values.numel()});
}

void CheckpointSaver::Impl::write(const RankContext& rank, const CheckpointInfo& info,
                                  std::span<const StateEntry> entries) {
  MUO_CHECK(static_cast<std::size_t>(rank.world) == parts_.size(), rank.world, " ranks");
  wait();
  const RankProgress::Scope saving(Activity::kFiles);
  set_parts(rank.rank, entries);
  save_together(rank.rank, rank.barrier, info, [&] {
    std::vector<std::byte> staging(kChunkBytes);
    for (const StateEntry& entry : entries) {
      if (!entry.writer) continue;
      for_each_chunk(entry, [&](std::int64_t at, std::int64_t count) {
        const Tensor host{.data = staging.data(), .shape = {count}, .dtype = entry.values.dtype};
        rank.compute.copy(host, entry.values.elements(at, count));
        rank.wait(rank.compute);
        files.write(entry.name, entry.begin + at,
                    {staging.data(), static_cast<std::size_t>(host.bytes())});
      });
    }
  });
}

void CheckpointSaver::Impl::start(const RankContext& rank, const CheckpointInfo& info,
                                  std::span<const StateEntry> entries, const Tensor& memory) {
  MUO_CHECK(static_cast<std::size_t>(rank.world) == parts_.size(), rank.world, " ranks");
  wait();
  std::vector<StateEntry>& staged = staged_[static_cast<std::size_t>(rank.rank)];
  staged.clear();
  std::int64_t at = 0;
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    StateEntry copy = entry;
    copy.values.data = memory.data + at;
    copy.values.device = memory.device;
    at += staged_bytes(entry);
    MUO_CHECK(at <= memory.bytes(), "the entries outgrew their staging memory");
    rank.compute.copy(copy.values, entry.values);
    staged.push_back(std::move(copy));
  }
  rank.wait(rank.compute);
  set_parts(rank.rank, staged);
  rank.barrier.arrive([&] { hand_over(info); }, "checkpoint save");
}

void CheckpointSaver::Impl::hand_over(const CheckpointInfo& info) {
  const SignalsBlocked in_the_threads;
  while (threads_.size() < parts_.size())
    threads_.emplace_back([this, rank = static_cast<int>(threads_.size())] { work(rank); });
  const std::lock_guard lock(mutex_);
  info_ = info;
  ++jobs_;
  busy_ = true;
  changed_.notify_all();
}

// A writer's thread.
void CheckpointSaver::Impl::work(int rank) {
  lower_priority();
  for (std::uint64_t done = 0;; ++done) {
    CheckpointInfo info;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return jobs_ > done || end_; });
      if (jobs_ == done) return;
      info = info_;
    }
    save_together(rank, writers_, info, [&] {
      for (const StateEntry& entry : staged_[static_cast<std::size_t>(rank)])
        for_each_chunk(entry, [&](std::int64_t at, std::int64_t count) {
          MUO_CHECK(!cancelled_, "the run has failed");
          const Tensor part = entry.values.elements(at, count);
          files.write(entry.name, entry.begin + at,
                      {part.data, static_cast<std::size_t>(part.bytes())});
        });
    });
  }
}

void CheckpointSaver::Impl::wait() {
  const RankProgress::Scope waiting(Activity::kFiles);
  std::uint64_t seen = files.changes();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !busy_; })) {
    lock.unlock();
    if (const std::uint64_t now = files.changes(); now != seen) {
      seen = now;
      RankProgress::alive();
    } else {
      RankProgress::check();
    }
    lock.lock();
  }
}

// For a rank that fails: a checkpoint of what was good is worth a moment, less than the watchdog's
// grace.
void CheckpointSaver::Impl::release() noexcept {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return !busy_; };
  if (changed_.wait_for(lock, std::chrono::seconds(3), idle)) return;
  cancelled_ = true;
  changed_.wait(lock, idle);
}

std::vector<SaveResult> CheckpointSaver::Impl::take_results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

CheckpointSaver::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    thread.join();
}

CheckpointSaver::CheckpointSaver(const fs::path& run, int world, const KeepCheckpoints& keep)
    : impl_(std::make_unique<Impl>(run, world, keep)) {}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::write(const RankContext& rank, const CheckpointInfo& info,
                            std::span<const StateEntry> entries) {
  impl_->write(rank, info, entries);
}

void CheckpointSaver::save(const RankContext& rank, const CheckpointInfo& info,
                           std::span<const StateEntry> entries) {
  impl_->write(rank, info, entries);
  throw_failure(rank, impl_->last_result());
}

void CheckpointSaver::start(const RankContext& rank, const CheckpointInfo& info,
                            std::span<const StateEntry> entries, Staging& staging) {
  const Buffer& memory = *staging.memory_;
  impl_->start(rank, info, entries,
               {.data = memory.data(),
                .shape = {memory.bytes()},
                .dtype = DType::kBytes,
                .device = rank.rank});
}

void CheckpointSaver::wait() { impl_->wait(); }

std::vector<SaveResult> CheckpointSaver::take_results() { return impl_->take_results(); }

void CheckpointSaver::mark_verified(std::int64_t step) { impl_->pruning.mark_verified(step); }

void CheckpointSaver::on_change(std::function<void(std::string_view change)> hook) {
  impl_->files.hook = std::move(hook);
}

void throw_failure(const RankContext& rank, const SaveResult& result) {
  if (result.failure.empty()) return;
  if (rank.rank == result.failed_rank) throw Error(result.failure);
  throw PeerFailed(result.failure);
}

std::int64_t CheckpointSaver::Staging::bytes(std::span<const StateEntry> entries) {
  std::int64_t total = 0;
  for (const StateEntry& entry : entries)
    total += staged_bytes(entry);
  return total;
}

CheckpointSaver::Staging::Staging(CheckpointSaver& saver, const RankContext& rank,
                                  std::span<const StateEntry> entries)
    : saver_(saver),
      memory_(rank.device.allocate_pinned(std::max<std::int64_t>(1, bytes(entries)),
                                          "checkpoint staging")) {
  // Host memory comes page by page when it is touched: now, not in the first save.
  std::memset(memory_->data(), 0, static_cast<std::size_t>(memory_->bytes()));
}

CheckpointSaver::Staging::~Staging() { saver_.impl_->release(); }

}  // namespace muo
