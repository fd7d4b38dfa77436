#pragma once

#include <string>

namespace muo {

// The word, quoted for a POSIX shell if necessary.
[[nodiscard]] std::string shell_word(const std::string& word);

// The name this program was invoked by, quoted, for suggested commands to run in the same folder.
[[nodiscard]] std::string program_word();

}  // namespace muo
