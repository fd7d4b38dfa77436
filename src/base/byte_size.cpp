#include "base/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

namespace muo {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kUnits = {Unit{"TiB", std::int64_t{1} << 40},
                               Unit{"TB", 1'000'000'000'000},
                               Unit{"GiB", std::int64_t{1} << 30},
                               Unit{"GB", 1'000'000'000},
                               Unit{"MiB", std::int64_t{1} << 20},
                               Unit{"MB", 1'000'000},
                               Unit{"KiB", std::int64_t{1} << 10},
                               Unit{"kB", 1'000},
                               Unit{"B", 1},
                               Unit{"", 1}};
constexpr double kMax = 0x1p60;

}  // namespace

std::optional<ByteSize> parse_byte_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(stop, end);
  for (const auto& [name, bytes] : kUnits) {
    if (unit != name) continue;
    const double size = number * static_cast<double>(bytes);
    if (!(size >= 1 && size <= kMax)) return std::nullopt;  // also fails for NaN
    return ByteSize{static_cast<std::int64_t>(size)};
  }
  return std::nullopt;
}

std::string to_text(ByteSize size) {
  for (const auto& [name, bytes] : kUnits)
    if (!name.empty() && name != "B" && size.bytes % bytes == 0)
      return fmt::format("{}{}", size.bytes / bytes, name);
  return fmt::format("{}", size.bytes);
}

}  // namespace muo
