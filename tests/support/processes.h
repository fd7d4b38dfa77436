#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/device_group.h"

namespace muo::test {

// Runs `body` in the processes of one world with these numbers of ranks. Each process is simulated
// by a thread, and leaves normally when `body` returns. Returns the text of the exception of each
// process, or "".
std::vector<std::string> as_processes(const std::vector<int>& ranks,
                                      const std::function<void(ProcessGroup&)>& body);

// Runs `body` on the ranks of one process, numbered as in the world. If one of them throws,
// its process fails.
void run_ranks(ProcessGroup& processes, const std::function<void(RankContext&)>& body,
               const WatchOptions& watch = {});

}  // namespace muo::test
