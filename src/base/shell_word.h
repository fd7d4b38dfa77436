#pragma once

#include <string>

namespace muo {

// The word as a POSIX shell reads it back, quoted where it has to be.
[[nodiscard]] std::string shell_word(const std::string& word);

// The name by which this program was called, for commands to be typed in the same folder.
[[nodiscard]] std::string program_word();

}  // namespace muo
