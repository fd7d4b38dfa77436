#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/device_group.h"

namespace muo::test {

// Runs `body` as processes of one world with so many ranks each, on a thread each, which leave in
// good order where it returns. What it threw, for each: "" if nothing.
std::vector<std::string> as_processes(const std::vector<int>& ranks,
                                      const std::function<void(ProcessGroup&)>& body);

// The ranks of one of them, numbered as in the world. If one throws, its process fails.
void run_ranks(ProcessGroup& processes, const std::function<void(RankContext&)>& body,
               const WatchOptions& watch = {});

}  // namespace muo::test
