#include "support/processes.h"

#include <chrono>
#include <cstddef>
#include <exception>
#include <thread>

#include "support/free_port.h"

namespace muo::test {
std::vector<std::string> as_processes(const std::vector<int>& ranks,
                                      const std::function<void(ProcessGroup&)>& body) {
  const int port = free_port();
  std::vector<std::string> thrown(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < ranks.size(); ++p)
    threads.emplace_back([&, p] {
      try {
        ProcessGroup processes({.process = static_cast<int>(p),
                                .processes = static_cast<int>(ranks.size()),
                                .port = port,
                                .secret = [] { return "a world of threads"; },
                                .ranks = ranks[p],
                                .heartbeat = std::chrono::milliseconds(100)});
        body(processes);
        processes.leave();
      } catch (const std::exception& error) {
        thrown[p] = error.what();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  return thrown;
}

void run_ranks(ProcessGroup& processes, const std::function<void(RankContext&)>& body,
               const WatchOptions& watch) {
  const RankRange ranks = processes.ranks();
  DeviceGroup group({.world = ranks.count, .watch = watch});
  group.run([&](RankContext& local) {
    RankContext rank{.rank = ranks.first + local.rank,
                     .world = processes.world(),
                     .device = local.device,
                     .compute = local.compute,
                     .comm = local.comm,
                     .update = local.update,
                     .communicator = local.communicator,
                     .barrier = local.barrier,
                     .progress = local.progress,
                     .common = local.common,
                     .interruption = local.interruption};
    try {
      body(rank);
    } catch (const std::exception& error) {
      processes.fail(error.what(), 3);
      throw;
    }
  });
}

}  // namespace muo::test
