#pragma once

#include <string>

namespace muo {

// Returns `word`, quoted for a POSIX shell if necessary.
[[nodiscard]] std::string shell_word(const std::string& word);

// Returns the name by which this program was invoked, quoted, for commands suggested to the user.
[[nodiscard]] std::string program_word();

}  // namespace muo
