#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"

namespace muo::test {

// Splits at spaces, without quoting.
std::vector<std::string> words_of(const std::string& text);

// Returns the command that the words request. Throws like parse_command_line().
cli::Command parse(const std::vector<std::string>& words);

}  // namespace muo::test
