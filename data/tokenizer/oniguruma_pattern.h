#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace muo::data {

// A regular expression that Oniguruma compiles and matches, as in Hugging Face's tokenizers.
// libmuograph_oniguruma.so links the library and is loaded with the first expression.
class OnigurumaPattern {
 public:
  OnigurumaPattern() = default;
  virtual ~OnigurumaPattern() = default;
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  // Calls `match` with the begin and end of each match in `text`, which is UTF-8, in order.
  // Thread-safe. Returns an empty string, or one line that says why matching stopped early.
  virtual std::string each_match(
      std::string_view text,
      const std::function<void(std::size_t begin, std::size_t end)>& match) const = 0;
};

// Type of the function that the plug-in exports as kOnigurumaEntry. Returns null if `pattern`,
// which is UTF-8, is not an expression; `error` then says why, in one line.
using OnigurumaEntry = OnigurumaPattern* (*)(std::string_view pattern, std::string* error);
inline constexpr const char* kOnigurumaEntry = "muograph_open_oniguruma";

}  // namespace muo::data
