#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"

namespace muo::test {

using ProcessBody = std::function<std::string(ProcessGroup&)>;
// How a process ended.
struct ProcessEnd {
  int code = -1;     // 0: as it should; 1: an expectation was not met; 128 + signal
  std::string said;  // what `body` returned; "InputError: ...", "Error: ..." if it threw
};

// Runs `body` in as many processes of one world as `ranks` has entries, with so many ranks each.
// They are this program again, with this test alone, which comes to this call and does not return
// from it: so a test calls it once, and before anything that they should not do.
std::vector<ProcessEnd> in_processes(const std::vector<int>& ranks, const ProcessBody& body);

}  // namespace muo::test
