#include "trainer/checkpoint/checkpoint_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/split_float.h"
#include "base/threads.h"

namespace muo::trainer {
namespace {

constexpr std::int64_t kChunkBytes = 4 << 20;  // bytes written between two heartbeats

// Names of the communication steps of a save by several processes, in order. They differ so that a
// process that skipped one is detected.
constexpr std::string_view kRanges = "checkpoint save: ranges";
constexpr std::string_view kFiles = "checkpoint save: files";
constexpr std::string_view kWritten = "checkpoint save: written";
constexpr std::string_view kEnd = "checkpoint save: end";

ProcessGroup* if_several(ProcessGroup* processes) {
  return processes != nullptr && processes->processes() > 1 ? processes : nullptr;
}

HiddenName hidden_name(const ProcessGroup* processes) {
  return processes == nullptr ? HiddenName::kPid : HiddenName::kHostAndPid;
}

std::int64_t aligned_bytes(const Tensor& tensor) {
  return (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t staged_bytes(const StateEntry& entry) {
  if (!entry.writer) return 0;
  return aligned_bytes(entry.values) + (entry.upper ? aligned_bytes(entry.upper) : 0);
}

}  // namespace

CheckpointSaver::CheckpointSaver(const std::filesystem::path& run, int world,
                                 const KeepCheckpoints& keep, ProcessGroup* processes)
    : world_(world),
      processes_(if_several(processes)),
      ranks_(processes_ == nullptr ? RankRange{.first = 0, .count = world} : processes_->ranks()),
      files_(run, hidden_name(processes_)),
      pruning_(run, keep, hidden_name(processes_)),
      entries_(static_cast<std::size_t>(ranks_.count)),
      staged_(entries_.size()),
      stagings_(entries_.size()),
      writers_(ranks_.count) {
  MUO_CHECK(processes_ == nullptr || processes_->world() == world, "a saver for ", world,
            " ranks in a world of ", processes_->world());
}

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

std::size_t CheckpointSaver::index(const RankContext& rank) const {
  MUO_CHECK(rank.world == world_ && ranks_.contains(rank.rank), "rank ", rank.rank, " of ",
            rank.world, " does not belong to this saver");
  return static_cast<std::size_t>(rank.rank - ranks_.first);
}

void CheckpointSaver::attempt(int rank, const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    record(rank, error);
  }
}

void CheckpointSaver::record(int rank, const std::exception& error) {
  const std::lock_guard lock(failure_mutex_);
  if (!result_.failure.empty()) return;
  const std::string where = processes_ != nullptr && rank >= 0
                                ? processes_->describe(processes_->process()) + ": "
                                : std::string();
  result_.failure =
      concat("checkpoint of step ", result_.step, " not saved: ", where, error.what());
  result_.is_write_error = dynamic_cast<const WriteError*>(&error) != nullptr;
  result_.failed_rank = rank;
}

// The ranks pass two barriers. At the first, the leader knows what each rank will write, and
// creates the files; at the second, it knows that all ranks have written. No rank may leave early,
// so failures are raised at the end. With several processes, their leaders communicate at each
// barrier.
void CheckpointSaver::save_together(int rank, Rendezvous& barrier, const CheckpointInfo& info,
                                    const Action& write_mine) {
  const auto start = [&] {
    result_ = {};
    result_.step = info.step;
    started_ = Clock::now();
    if (processes_ == nullptr)
      attempt(rank, [&] { make_files(info.step, local_ranges()); });
    else
      begin_together(rank, info.step);
    begun_ = result_.failure.empty();
  };
  const auto finish = [&] {
    if (processes_ == nullptr)
      end(rank, info);
    else
      end_together(rank, info);
    const std::lock_guard lock(mutex_);
    results_.push_back(result_);
    busy_ = false;
    changed_.notify_all();
  };
  barrier.arrive(start, "checkpoint save");
  if (begun_) attempt(rank, write_mine);
  barrier.arrive(finish, "checkpoint save");
}

std::vector<CheckpointRange> CheckpointSaver::local_ranges() const {
  std::vector<CheckpointRange> ranges;
  for (const std::span<const StateEntry> entries : entries_)
    for (const StateEntry& entry : entries)
      if (entry.writer)
        ranges.push_back(
            {.spec = {.name = entry.name, .dtype = entry.dtype(), .shape = entry.shape},
             .begin = entry.begin,
             .end = entry.begin + entry.values.numel()});
  return ranges;
}

void CheckpointSaver::make_files(std::int64_t step, std::vector<CheckpointRange> ranges) {
  for (const CheckpointRange& range : ranges)
    result_.bytes += (range.end - range.begin) * size_of(range.spec.dtype);
  files_.begin(step, std::move(ranges));
}

void CheckpointSaver::begin_together(int rank, std::int64_t step) {
  std::vector<SaveMessage> all = gather(kRanges, {.ranges = local_ranges()});
  SaveMessage plan;
  if (processes_->is_first() && result_.failure.empty())
    attempt(rank, [&] {
      std::vector<CheckpointRange> ranges;
      for (SaveMessage& process : all)
        std::ranges::move(process.ranges, std::back_inserter(ranges));
      make_files(step, std::move(ranges));
      plan.plan = files_.plan();
    });
  plan.result = result_;
  const std::optional<SaveMessage> agreed = broadcast(kFiles, plan);
  if (processes_->is_first() || !agreed) return;
  result_ = agreed->result;
  if (result_.failure.empty()) attempt(rank, [&] { files_.join(agreed->plan); });
}

void CheckpointSaver::end(int rank, const CheckpointInfo& info) {
  if (result_.failure.empty()) attempt(rank, [&] { commit(info); });
  files_.abandon();
  result_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
}

// Each process syncs its own writes, because no other host can. All of them are on disk before
// process 0 begins to commit.
void CheckpointSaver::end_together(int rank, const CheckpointInfo& info) {
  SaveMessage mine;
  if (result_.failure.empty()) attempt(rank, [&] { mine.sums = files_.sync(); });
  mine.result = result_;
  const bool first = processes_->is_first();
  // Close the files before process 0 removes them: NFS keeps open files and their directory alive.
  if (!first) files_.abandon();
  const std::vector<SaveMessage> all = gather(kWritten, mine);
  if (first) {
    for (const SaveMessage& process : all)
      if (result_.failure.empty() && !process.result.failure.empty()) {
        result_.failure = process.result.failure;
        result_.is_write_error = process.result.is_write_error;
        result_.failed_rank = process.result.failed_rank;
      }
    if (result_.failure.empty())
      attempt(rank, [&] {
        for (std::size_t process = 1; process < all.size(); ++process)
          files_.add(all[process].sums);
      });
    end(rank, info);
  }
  // Process 0 keeps its own result even if the broadcast fails: it knows what is on disk.
  const SaveResult known = result_;
  const std::optional<SaveMessage> agreed = broadcast(kEnd, {.result = known});
  if (first)
    result_ = known;
  else if (agreed)
    result_ = agreed->result;
}

std::vector<SaveMessage> CheckpointSaver::gather(std::string_view site, const SaveMessage& mine) {
  std::vector<SaveMessage> all;
  communicate([&] {
    for (const std::string& text : processes_->gather(Channel::kSaves, site, pack_message(mine)))
      all.push_back(unpack_message(text));
  });
  return all;
}

std::optional<SaveMessage> CheckpointSaver::broadcast(std::string_view site,
                                                      const SaveMessage& mine) {
  SaveMessage message;
  const bool done = communicate([&] {
    message = unpack_message(
        processes_->broadcast(Channel::kSaves, site, [&] { return pack_message(mine); }));
  });
  return done ? std::optional(std::move(message)) : std::nullopt;
}

// Returns false if `exchange` failed. A failure that is not the group's own, for example a lack of
// memory, makes the group fail, so that no process waits for this one.
bool CheckpointSaver::communicate(const Action& exchange) {
  const RankProgress::Scope waiting(Activity::kPeers);
  communicating_ = true;
  bool done = false;
  try {
    exchange();
    done = true;
  } catch (const std::exception& error) {
    if (dynamic_cast<const PeerFailed*>(&error) == nullptr) processes_->fail(error.what(), 3);
    result_.failure.clear();  // may be a consequence: process 0 may have removed the files
    record(-1, error);
  }
  communicating_ = false;
  return done;
}

void CheckpointSaver::commit(CheckpointInfo info) {
  const std::int64_t step = info.step;
  info.world = world_;
  if (before_commit_)
    if (std::string note = before_commit_(); !note.empty())
      result_.notes.push_back(std::move(note));
  files_.commit(std::move(info));
  pruning_.mark_verified(step);
  try {
    for (std::string& note :
         pruning_.prune(step, [this](std::string_view what) { files_.change(what); }))
      result_.notes.push_back(std::move(note));
  } catch (const std::exception& error) {  // the checkpoint itself is saved
    result_.notes.push_back(concat("cannot remove old checkpoints: ", error.what()));
  }
}

// Writes this rank's values in chunks; `on_host` returns a chunk in host memory.
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
  const std::size_t local = index(rank);
  wait();
  const RankProgress::Scope saving(Activity::kFiles);
  entries_[local] = entries;
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
  const std::size_t local = index(rank);
  wait();
  if (staging.user_ != this) {
    if (staging.user_ != nullptr) staging.user_->detach(local);
    staging.user_ = this;
    stagings_[local] = &staging;
  }
  const Buffer& memory = *staging.memory_;
  std::vector<StateEntry>& staged = staged_[local];
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
              "the entries do not fit into their staging memory");
    stage(copy.values, entry.values, at);
    if (entry.upper) stage(copy.upper, entry.upper, upper_at);
    at += staged_bytes(entry);
    staged.push_back(std::move(copy));
  }
  rank.wait(rank.compute);
  entries_[local] = staged;
  rank.barrier.arrive([&] { submit(info); }, "checkpoint save");
}

void CheckpointSaver::submit(const CheckpointInfo& info) {
  while (threads_.size() < entries_.size())
    threads_.push_back(start_thread([this, local = threads_.size()] { work(local); }));
  const std::lock_guard lock(mutex_);
  info_ = info;
  ++jobs_;
  busy_ = true;
  changed_.notify_all();
}

// Body of a writer thread.
void CheckpointSaver::work(std::size_t local) {
  // Training has priority over saving. On Linux, niceness applies to a single thread.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10));
  for (std::uint64_t done = 0;; ++done) {
    CheckpointInfo info;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return jobs_ > done || end_; });
      if (jobs_ == done) return;
      info = info_;
    }
    save_together(ranks_.first + static_cast<int>(local), writers_, info, [&] {
      write_chunks(staged_[local], [&](const Tensor& chunk) {
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
    // While this process waits for others, their own watchdogs watch their disks.
    if (const std::uint64_t now = files_.changes(); now != seen || communicating_) {
      seen = now;
      RankProgress::alive();
    } else {
      RankProgress::check();
    }
    lock.lock();
  }
}

// Called when a rank fails. A save in progress gets three seconds to end (less than the watchdog
// waits before it ends the process); then it is cancelled. Its writers may be waiting for other
// processes, which only a failure of the whole group interrupts.
void CheckpointSaver::release(const Staging& staging) noexcept {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return !busy_; };
  if (!changed_.wait_for(lock, std::chrono::seconds(3), idle)) {
    cancelled_ = true;
    if (processes_ != nullptr) {
      lock.unlock();
      processes_->fail(
          concat(processes_->describe(processes_->process()),
                 " cancelled a checkpoint that was being written, because one of its ranks "
                 "has failed"),
          3);
      lock.lock();
    }
    changed_.wait(lock, idle);
  }
  std::ranges::replace(stagings_, &staging, nullptr);
}

void CheckpointSaver::detach(std::size_t local) {
  wait();
  stagings_[local] = nullptr;
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
  // Touch the memory, so that its page faults do not slow down the first save.
  std::memset(memory_->data(), 0, static_cast<std::size_t>(memory_->bytes()));
}

CheckpointSaver::Staging::~Staging() {
  if (user_ != nullptr) user_->release(*this);
}

}  // namespace muo::trainer
