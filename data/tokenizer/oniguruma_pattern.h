#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace muo::data {

// An expression that Oniguruma reads and matches, as Hugging Face's tokenizers have it do.
// libmuograph_oniguruma.so links the library, and is loaded with the first one.
class OnigurumaPattern {
 public:
  OnigurumaPattern() = default;
  virtual ~OnigurumaPattern() = default;
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  // Calls `match` with the begin and end of each match in `text`, which is UTF-8, in order; of
  // several threads at once. Empty, or one line: why there are no more.
  virtual std::string each_match(
      std::string_view text,
      const std::function<void(std::size_t begin, std::size_t end)>& match) const = 0;
};

// What the library exports under kOnigurumaEntry. Null: `error` says in one line why `pattern`,
// which is UTF-8, is no expression.
using OnigurumaEntry = OnigurumaPattern* (*)(std::string_view pattern, std::string* error);
inline constexpr const char* kOnigurumaEntry = "muograph_open_oniguruma";

}  // namespace muo::data
