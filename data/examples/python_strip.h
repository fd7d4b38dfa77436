#pragma once

#include <string_view>

namespace muo::data {

// Python's str.strip(): removes Unicode white space from both ends. `text` is UTF-8.
std::string_view python_strip(std::string_view text);

}  // namespace muo::data
