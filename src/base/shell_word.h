#pragma once

#include <string>

namespace muo {

// The word as a POSIX shell reads it back, quoted where it has to be.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace muo
