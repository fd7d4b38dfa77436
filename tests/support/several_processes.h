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
  std::string said;  // result of `body`; "InputError: ...", "Error: ..." if it threw
};

// Runs `body` in one process per entry of `ranks`, with that number of ranks each. The processes
// are this program, started with this test only, which in them ends within this call: so a test
// calls it once, and before anything that they should not do.
std::vector<ProcessEnd> in_processes(const std::vector<int>& ranks, const ProcessBody& body);

}  // namespace muo::test
