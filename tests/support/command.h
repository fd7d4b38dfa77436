#pragma once

#include <string>

#include "support/program.h"

namespace muo::test {

// Runs a shell command, prefixed by the assignments in `environment`.
Outcome run_command(const std::string& command, const std::string& environment = "");

}  // namespace muo::test
