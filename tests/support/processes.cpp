#include "support/processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <thread>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace muo::test {
namespace {

int free_port() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  MUO_CHECK(
      ::bind(socket.number(), at, size) == 0 && ::getsockname(socket.number(), at, &size) == 0,
      "no port");
  return ntohs(address.sin_port);
}

}  // namespace

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
                                .token = "a world of threads",
                                .ranks = ranks[p],
                                .beat = std::chrono::milliseconds(100)});
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
