#include "support/split_world.h"

#include <thread>
#include <utility>

#include "runtime/host/host_device.h"
#include "runtime/rank.h"

namespace muo::test {

LocalRanks::LocalRanks(const HostWorld& world)
    : local_(world.local()),
      rendezvous_(local_.count),
      communicators_(make_host_communicators(world, rendezvous_)),
      progress_(static_cast<std::size_t>(local_.count)) {}

void LocalRanks::run(const RankBody& body) {
  {
    std::vector<std::jthread> threads;
    threads.reserve(progress_.size());
    for (int index = 0; index < local_.count; ++index)
      threads.emplace_back([this, index, &body] { run_rank(index, body); });
  }
  if (cause_) std::rethrow_exception(cause_);
  if (consequence_) std::rethrow_exception(consequence_);
}

void LocalRanks::run_rank(int index, const RankBody& body) {
  RankProgress& progress = progress_[static_cast<std::size_t>(index)];
  const RankProgress::Thread thread(progress, "a test");
  try {
    auto device = std::make_unique<HostDevice>(local_.first + index);
    device->bind_thread();
    RankStreams streams(*device);
    std::unique_ptr<Communicator> communicator = communicators_->join(*device);
    Rank rank(std::move(device), std::move(streams), std::move(communicator), rendezvous_,
              progress);
    body(rank.context());
    rendezvous_.leave();
  } catch (const PeerFailed&) {
    failed(std::current_exception(), /*is_root_cause=*/false);
  } catch (...) {
    failed(std::current_exception(), /*is_root_cause=*/true);
  }
}

void LocalRanks::failed(std::exception_ptr exception, bool is_root_cause) {
  {
    const std::lock_guard lock(mutex_);
    std::exception_ptr& slot = is_root_cause ? cause_ : consequence_;
    if (!slot) slot = std::move(exception);
  }
  abort();
  on_failure();
}

void LocalRanks::abort() noexcept {
  for (RankProgress& rank : progress_)
    rank.stop();
  rendezvous_.break_all();
  communicators_->abort();
}

HostWorld world_of(const std::vector<int>& split, int process, ProcessExchange* exchange) {
  HostWorld world{.process = process, .exchange = exchange};
  int first = 0;
  for (const int count : split) {
    world.processes.push_back({.first = first, .count = count});
    first += count;
  }
  return world;
}

SplitWorld::SplitWorld(const std::vector<int>& split) : exchange_(static_cast<int>(split.size())) {
  for (int process = 0; process < static_cast<int>(split.size()); ++process) {
    processes_.push_back(
        std::make_unique<LocalRanks>(world_of(split, process, &exchange_.end(process))));
    processes_.back()->on_failure = [this] { abort(); };
  }
}

void SplitWorld::run(const RankBody& body) {
  std::mutex mutex;
  std::exception_ptr cause, consequence;
  {
    std::vector<std::jthread> threads;
    threads.reserve(processes_.size());
    for (const auto& process : processes_)
      threads.emplace_back([&mutex, &cause, &consequence, &body, &process] {
        try {
          process->run(body);
        } catch (const PeerFailed&) {
          const std::lock_guard lock(mutex);
          consequence = std::current_exception();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!cause) cause = std::current_exception();
        }
      });
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

void SplitWorld::abort() noexcept {
  for (const auto& process : processes_)
    process->abort();
}

}  // namespace muo::test
