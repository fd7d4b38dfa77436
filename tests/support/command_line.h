#pragma once

#include <string>
#include <vector>

#include "app/cli.h"

namespace muo::test {

// Cut at spaces, without quoting.
std::vector<std::string> words_of(const std::string& text);

// What they ask the program for. Throws as parse_command_line() does.
app::Command parse(const std::vector<std::string>& words);

}  // namespace muo::test
