#include "kit/progress_text.h"

#include <fmt/format.h>

#include "base/terminal.h"

namespace muo::kit {
namespace {

std::string percent_text(std::int64_t done, std::int64_t all) {
  return fmt::format("{:3.0f} %", 100 * static_cast<double>(done) / static_cast<double>(all));
}

}  // namespace

std::string progress_text(const TokenizeProgress& p) {
  std::string line =
      fmt::format("{} tokens, {} shards", count_text(static_cast<double>(p.tokens)), p.shards);
  if (p.text_bytes > 0)
    line +=
        fmt::format(", {:.1f} MB/s of text", static_cast<double>(p.text_bytes) / p.seconds * 1e-6);
  if (p.input_bytes == 0 || p.taken == 0) return line;
  return fmt::format("{}  {}  {}", percent_text(p.taken, p.input_bytes), line,
                     eta_text(static_cast<double>(p.input_bytes - p.taken),
                              static_cast<double>(p.taken - p.held), p.seconds));
}

std::string progress_text(const ExampleProgress& p) {
  const auto done = static_cast<double>(p.done);
  return fmt::format("{}  {}  {} rows/s  {}", percent_text(p.done, p.rows), printable(p.task),
                     count_text(done / p.seconds),
                     eta_text(static_cast<double>(p.rows - p.done), done, p.seconds));
}

}  // namespace muo::kit
