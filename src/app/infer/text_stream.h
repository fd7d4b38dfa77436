#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muo::app {

// A sample's text as it grows, token by token: says what of it is certain. The text ends before the
// first of the stop texts that appears in it.
class TextStream {
 public:
  explicit TextStream(std::span<const std::string> stops) : stops_(stops.begin(), stops.end()) {}

  // What can be shown once these bytes have come: never a part of a character, nor what may turn
  // out to begin a stop text. Bytes that are no UTF-8 pass as they are.
  std::string add(std::string_view bytes);
  [[nodiscard]] bool stopped() const { return stopped_; }
  // What was still held back, as nothing follows.
  std::string finish();

 private:
  std::string take(std::size_t count);

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace muo::app
