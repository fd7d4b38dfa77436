#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muo {

// A time that a user writes as "90", "90s", "1.5h" or "1h30m".
struct Duration {
  double seconds = 0;
};

// Parses all of `text` as a time: seconds, or numbers each followed by d, h, m or s, the largest
// unit first. Returns nullopt if `text` is not a time, or if the time is 0 or above 10^9 seconds.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);

// The time in these units: "1h30m". Parsing returns the same time.
[[nodiscard]] std::string to_text(Duration time);

}  // namespace muo
