#include "trainer/infer/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace muo::trainer {
namespace {

// Returns the length of the longest suffix of `text` that is a proper prefix of `stop`.
std::size_t partial_stop(std::string_view text, std::string_view stop) {
  for (std::size_t count = std::min(text.size(), stop.size() - 1); count > 0; --count)
    if (text.ends_with(stop.substr(0, count))) return count;
  return 0;
}

}  // namespace

std::string TextStream::take(std::size_t count) {
  std::string out = held_.substr(0, count);
  held_.erase(0, count);
  return out;
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  std::size_t stop = std::string::npos;
  for (const std::string& text : stops_)
    stop = std::min(stop, held_.find(text));
  if (stop != std::string::npos) {
    stopped_ = true;
    held_.erase(stop);
    return std::exchange(held_, {});
  }
  std::size_t certain = held_.size();
  for (const std::string& text : stops_)
    certain = std::min(certain, held_.size() - partial_stop(held_, text));
  return take(certain - utf8_cut_off(std::string_view(held_).substr(0, certain)));
}

std::string TextStream::finish() { return std::exchange(held_, {}); }

}  // namespace muo::trainer
