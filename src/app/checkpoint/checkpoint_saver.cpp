#include "app/checkpoint/checkpoint_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/split_float.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkBytes = 4 << 20;  // between two heartbeats

std::int64_t aligned_bytes(const Tensor& tensor) {
  return (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t staged_bytes(const StateEntry& entry) {
  if (!entry.writer) return 0;
  return aligned_bytes(entry.values) + (entry.upper ? aligned_bytes(entry.upper) : 0);
}

// First under another name: whatever happens meanwhile, nobody takes what is left of it for a
// checkpoint. What is left then, the next save removes (CheckpointFiles::begin).
void remove_checkpoint(const fs::path& path) {
  const fs::path hidden = hidden_beside(path, "old");
  fs::rename(path, hidden);
  sync_directory(path.parent_path());  // before its files go
  fs::remove_all(hidden);
}

bool opens(const fs::path& path, bool verify) {
  try {
    const Checkpoint checkpoint(path, {.verify = verify});
    return true;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(const fs::path& run, int world, const KeepCheckpoints& keep)
    : files_(run),
      pruning_(run, keep),
      entries_(static_cast<std::size_t>(world)),
      staged_(static_cast<std::size_t>(world)),
      stagings_(static_cast<std::size_t>(world)),
      writers_(world) {}

CheckpointSaver::~CheckpointSaver() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    thread.join();
  for (Staging* staging : stagings_)
    if (staging != nullptr) staging->user_ = nullptr;
}

void CheckpointSaver::attempt(int rank, const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_mutex_);
    if (!result_.failure.empty()) return;
    result_.failure = concat("checkpoint of step ", result_.step, " not saved: ", error.what());
    result_.is_write_error = dynamic_cast<const WriteError*>(&error) != nullptr;
    result_.failed_rank = rank;
  }
}

// All meet twice: before, the leader knows what each of them will write and makes the files; after,
// it knows that all have written. No rank may leave early, so failures wait for the end.
void CheckpointSaver::save_together(int rank, Rendezvous& barrier, const CheckpointInfo& info,
                                    const Action& write_mine) {
  const auto start = [&] {
    result_ = {};
    result_.step = info.step;
    started_ = Clock::now();
    begun_ = false;
    attempt(rank, [&] { begin(info); });
  };
  const auto finish = [&] {
    if (result_.failure.empty()) attempt(rank, [&] { end(info); });
    files_.abandon();
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

void CheckpointSaver::begin(const CheckpointInfo& info) {
  std::vector<CheckpointRange> ranges;
  for (const std::span<const StateEntry> entries : entries_)
    for (const StateEntry& entry : entries)
      if (entry.writer) {
        ranges.push_back(
            {.spec = {.name = entry.name, .dtype = entry.dtype(), .shape = entry.shape},
             .begin = entry.begin,
             .end = entry.begin + entry.values.numel()});
        result_.bytes += entry.values.numel() * size_of(entry.dtype());
      }
  files_.begin(info.step, std::move(ranges));
  begun_ = true;
}

void CheckpointSaver::end(CheckpointInfo info) {
  info.world = static_cast<int>(entries_.size());
  const std::int64_t step = info.step;
  if (before_commit_)
    if (std::string note = before_commit_(); !note.empty())
      result_.notes.push_back(std::move(note));
  files_.commit(std::move(info));
  pruning_.mark_verified(step);
  try {
    for (std::string& note :
         pruning_.prune(step, [this](std::string_view what) { files_.change(what); }))
      result_.notes.push_back(std::move(note));
  } catch (const std::exception& error) {  // the checkpoint is saved nevertheless
    result_.notes.push_back(concat("old checkpoints are not removed: ", error.what()));
  }
}

// Of the values that this rank writes, in chunks: `on_host` gives the memory that holds one.
void CheckpointSaver::write_chunks(std::span<const StateEntry> entries,
                                   const std::function<Tensor(const Tensor& chunk)>& on_host) {
  std::vector<BF16> upper;
  std::vector<float> joined;
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    const std::int64_t most = kChunkBytes / size_of(entry.dtype());
    const std::int64_t count = entry.values.numel();
    for (std::int64_t at = 0; at < count; at += most) {
      const std::int64_t n = std::min(most, count - at);
      if (entry.upper) {
        const auto* begin = on_host(entry.upper.elements(at, n)).as<BF16>();
        upper.assign(begin, begin + n);
      }
      Tensor host = on_host(entry.values.elements(at, n));
      if (entry.upper) {
        const auto* lower = host.as<std::uint16_t>();
        joined.resize(upper.size());
        std::transform(upper.begin(), upper.end(), lower, joined.begin(), join_float);
        host = host_tensor(joined.data(), {n});
      }
      files_.write(entry.name, entry.begin + at,
                   {host.data, static_cast<std::size_t>(host.bytes())});
    }
  }
}

void CheckpointSaver::write(const RankContext& rank, const CheckpointInfo& info,
                            std::span<const StateEntry> entries) {
  MUO_CHECK(static_cast<std::size_t>(rank.world) == entries_.size(), rank.world, " ranks");
  wait();
  const RankProgress::Scope saving(Activity::kFiles);
  entries_[static_cast<std::size_t>(rank.rank)] = entries;
  save_together(rank.rank, rank.barrier, info, [&] {
    std::vector<std::byte> staging(kChunkBytes);
    write_chunks(entries, [&](const Tensor& chunk) {
      const Tensor host{.data = staging.data(), .shape = chunk.shape, .dtype = chunk.dtype};
      rank.compute.copy(host, chunk);
      rank.wait(rank.compute);
      return host;
    });
  });
}

void CheckpointSaver::save(const RankContext& rank, const CheckpointInfo& info,
                           std::span<const StateEntry> entries) {
  write(rank, info, entries);
  throw_failure(rank, result_);
}

void CheckpointSaver::start(const RankContext& rank, const CheckpointInfo& info,
                            std::span<const StateEntry> entries, Staging& staging) {
  MUO_CHECK(static_cast<std::size_t>(rank.world) == entries_.size(), rank.world, " ranks");
  wait();
  if (staging.user_ != this) {
    if (staging.user_ != nullptr) staging.user_->let_go(rank.rank);
    staging.user_ = this;
    stagings_[static_cast<std::size_t>(rank.rank)] = &staging;
  }
  const Buffer& memory = *staging.memory_;
  std::vector<StateEntry>& staged = staged_[static_cast<std::size_t>(rank.rank)];
  staged.clear();
  std::int64_t at = 0;
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    StateEntry copy = entry;
    const std::int64_t upper_at = at + aligned_bytes(entry.values);
    const auto stage = [&](Tensor& to, const Tensor& from, std::int64_t where) {
      to.data = memory.data() + where;
      to.device = rank.rank;
      rank.compute.copy(to, from);
    };
    MUO_CHECK(at + staged_bytes(entry) <= memory.bytes(),
              "the entries outgrew their staging memory");
    stage(copy.values, entry.values, at);
    if (entry.upper) stage(copy.upper, entry.upper, upper_at);
    at += staged_bytes(entry);
    staged.push_back(std::move(copy));
  }
  rank.wait(rank.compute);
  entries_[static_cast<std::size_t>(rank.rank)] = staged;
  rank.barrier.arrive([&] { hand_over(info); }, "checkpoint save");
}

void CheckpointSaver::hand_over(const CheckpointInfo& info) {
  while (threads_.size() < entries_.size())
    threads_.emplace_back([this, rank = static_cast<int>(threads_.size())] { work(rank); });
  const std::lock_guard lock(mutex_);
  info_ = info;
  ++jobs_;
  busy_ = true;
  changed_.notify_all();
}

// A writer's thread.
void CheckpointSaver::work(int rank) {
  // Training goes first. On Linux a thread has a priority of its own.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10));
  for (std::uint64_t done = 0;; ++done) {
    CheckpointInfo info;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return jobs_ > done || end_; });
      if (jobs_ == done) return;
      info = info_;
    }
    save_together(rank, writers_, info, [&] {
      write_chunks(staged_[static_cast<std::size_t>(rank)], [&](const Tensor& chunk) {
        MUO_CHECK(!cancelled_, "the run has failed");
        return chunk;
      });
    });
  }
}

void CheckpointSaver::wait() {
  const RankProgress::Scope waiting(Activity::kFiles);
  std::uint64_t seen = files_.changes();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !busy_; })) {
    lock.unlock();
    if (const std::uint64_t now = files_.changes(); now != seen) {
      seen = now;
      RankProgress::alive();
    } else {
      RankProgress::check();
    }
    lock.lock();
  }
}

// Called when a rank fails. A save under way gets three seconds to end, less than the watchdog
// waits before it ends the process; then it is cancelled.
void CheckpointSaver::release(const Staging& staging) noexcept {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return !busy_; };
  if (!changed_.wait_for(lock, std::chrono::seconds(3), idle)) {
    cancelled_ = true;
    changed_.wait(lock, idle);
  }
  std::ranges::replace(stagings_, &staging, nullptr);
}

void CheckpointSaver::let_go(int rank) {
  wait();
  stagings_[static_cast<std::size_t>(rank)] = nullptr;
}

bool CheckpointSaver::is_saving() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

std::vector<SaveResult> CheckpointSaver::take_results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void throw_failure(const RankContext& rank, const SaveResult& result) {
  if (result.failure.empty()) return;
  if (rank.rank == result.failed_rank && result.is_write_error) throw WriteError(result.failure);
  if (rank.rank == result.failed_rank) throw Error(result.failure);
  throw PeerFailed(result.failure);
}

std::int64_t CheckpointSaver::Staging::bytes(std::span<const StateEntry> entries) {
  std::int64_t total = 0;
  for (const StateEntry& entry : entries)
    total += staged_bytes(entry);
  return total;
}

CheckpointSaver::Staging::Staging(const RankContext& rank, std::span<const StateEntry> entries)
    : memory_(rank.device.allocate_pinned(std::max<std::int64_t>(1, bytes(entries)),
                                          "checkpoint staging")) {
  // Host memory comes page by page when it is touched: now, not in the first save.
  std::memset(memory_->data(), 0, static_cast<std::size_t>(memory_->bytes()));
}

CheckpointSaver::Staging::~Staging() {
  if (user_ != nullptr) user_->release(*this);
}

CheckpointPruning::CheckpointPruning(fs::path run, const KeepCheckpoints& keep)
    : run_(std::move(run)), keep_(keep) {}

// Reads the whole files, once for each checkpoint.
bool CheckpointPruning::verified(const fs::path& path, std::int64_t step) {
  if (good_.contains(step)) return true;
  if (bad_.contains(step)) return false;
  const bool good = opens(path, /*verify=*/true);
  (good ? good_ : bad_).insert(step);
  return good;
}

std::vector<std::string> CheckpointPruning::prune(
    std::int64_t step, const std::function<void(std::string_view)>& change) {
  std::vector<std::string> notes;
  if (keep_.last == 0) return notes;
  std::int64_t kept = 0;
  for (const FoundCheckpoint& found : find_checkpoints(run_)) {  // newest first
    if (found.step > step) continue;
    if (kept < keep_.last) {
      kept += verified(found.path, found.step) ? 1 : 0;
      continue;
    }
    if (keep_.every > 0 && found.step % keep_.every == 0) continue;
    if (!good_.contains(found.step) && !opens(found.path, /*verify=*/false)) continue;
    try {
      change("remove an old checkpoint");
      remove_checkpoint(found.path);
      good_.erase(found.step);
    } catch (const std::exception& error) {
      notes.push_back(
          concat("old checkpoint ", found.path.string(), " is not removed: ", error.what()));
    }
  }
  return notes;
}

}  // namespace muo
