#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"

namespace muo::test {

using ProcessBody = std::function<std::string(ProcessGroup&)>;
// End of a process.
struct ProcessEnd {
  int code = -1;     // 0: success; 1: an expectation failed; 128 + signal
  std::string said;  // result of `body`, or "InputError: ..." or "Error: ..." if it threw
};

// Runs `body` in one process per entry of `ranks`, with that number of ranks each. The processes
// are this program, started for this test only; in them, the test ends within this call. Hence a
// test calls this once, and before anything that the processes should not do.
std::vector<ProcessEnd> in_processes(const std::vector<int>& ranks, const ProcessBody& body);

}  // namespace muo::test
