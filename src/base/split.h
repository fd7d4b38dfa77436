#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace muo {

// The parts of `text` between occurrences of `mark`, which is not empty; some parts may be empty.
inline std::vector<std::string_view> split(std::string_view text, std::string_view mark) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(mark, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + mark.size();
  }
  return out;
}

}  // namespace muo
