#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muo::trainer {

// The text of a sample, built incrementally. add() and finish() return the part that is final. The
// text ends before the first occurrence of a stop text.
class TextStream {
 public:
  explicit TextStream(std::span<const std::string> stops) : stops_(stops.begin(), stops.end()) {}

  // Appends bytes and returns the text that is now final, which ends neither within a character nor
  // within a possible stop text. Invalid UTF-8 is passed through unchanged.
  std::string add(std::string_view bytes);
  [[nodiscard]] bool stopped() const { return stopped_; }
  // Ends the text and returns what was held back.
  std::string finish();

 private:
  std::string take(std::size_t count);

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace muo::trainer
