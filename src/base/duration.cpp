#include "base/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace muo {
namespace {

struct TimeUnit {
  char name;
  std::int64_t seconds;
};
constexpr std::array kTimeUnits = {TimeUnit{'d', 86'400}, TimeUnit{'h', 3'600}, TimeUnit{'m', 60},
                                   TimeUnit{'s', 1}};
constexpr double kMaxTime = 1e9;

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  double seconds = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  std::size_t unit = 0;  // the largest that may still occur
  while (at != end) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0)) return std::nullopt;
    if (stop == end && at == text.data()) {  // no unit
      seconds = number;
      break;
    }
    while (unit < kTimeUnits.size() && (stop == end || kTimeUnits.at(unit).name != *stop))
      ++unit;
    if (unit == kTimeUnits.size()) return std::nullopt;
    seconds += number * static_cast<double>(kTimeUnits.at(unit++).seconds);
    at = stop + 1;
  }
  if (!(seconds > 0 && seconds <= kMaxTime)) return std::nullopt;
  return Duration{seconds};
}

std::string to_text(Duration time) {
  if (time.seconds != std::floor(time.seconds)) return fmt::format("{}s", time.seconds);
  std::string text;
  auto left = static_cast<std::int64_t>(time.seconds);
  for (const auto& [name, seconds] : kTimeUnits) {
    if (left >= seconds) text += fmt::format("{}{}", left / seconds, name);
    left %= seconds;
  }
  return text;
}

}  // namespace muo
