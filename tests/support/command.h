#pragma once

#include <string>

#include "support/program.h"

namespace muo::test {

// A command of the shell; `environment` is assignments before it.
Outcome run_command(const std::string& command, const std::string& environment = "");

}  // namespace muo::test
