#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device_group.h"
#include "runtime/host/host_communicator.h"
#include "runtime/rank_progress.h"
#include "support/memory_exchange.h"

namespace muo::test {

using RankBody = std::function<void(RankContext& rank)>;

// The ranks of one process of a host world, a thread each.
class LocalRanks {
 public:
  explicit LocalRanks(const HostWorld& world);

  // Runs `body` on each rank. If one throws, on_failure() is called, the others are released, and
  // the cause is rethrown.
  void run(const RankBody& body);
  // Releases all waiting ranks. May be called from any thread.
  void abort() noexcept;
  std::function<void()> on_failure = [] {};

 private:
  void run_rank(int index, const RankBody& body);
  void failed(std::exception_ptr exception, bool is_root_cause);

  const RankRange local_;
  Rendezvous rendezvous_;
  std::unique_ptr<CommunicatorGroup> communicators_;
  std::vector<RankProgress> progress_;
  std::mutex mutex_;
  std::exception_ptr cause_, consequence_;
};

// A world with `split[p]` ranks in process p.
HostWorld world_of(const std::vector<int>& split, int process, ProcessExchange* exchange);

// A world whose processes are simulated in this process and exchange through memory.
class SplitWorld {
 public:
  explicit SplitWorld(const std::vector<int>& split);

  // Runs `body` on every rank of every process. If one throws, all are released, and one
  // cause is rethrown.
  void run(const RankBody& body);
  void abort() noexcept;
  [[nodiscard]] const MemoryExchange& exchange() const { return exchange_; }

 private:
  MemoryExchange exchange_;
  std::vector<std::unique_ptr<LocalRanks>> processes_;
};

}  // namespace muo::test
