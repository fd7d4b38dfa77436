#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/device_group.h"

namespace muo::test {

// Runs `body` in processes of one world with these numbers of ranks, simulated by a thread each,
// which leave normally when it returns. Returns the text of each one's exception, or "".
std::vector<std::string> as_processes(const std::vector<int>& ranks,
                                      const std::function<void(ProcessGroup&)>& body);

// Runs `body` on the ranks of one process, numbered as in the world. If one throws, its process
// fails.
void run_ranks(ProcessGroup& processes, const std::function<void(RankContext&)>& body,
               const WatchOptions& watch = {});

}  // namespace muo::test
