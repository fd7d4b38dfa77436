#include "data/examples/python_strip.h"

#include <algorithm>
#include <array>

namespace muo::data {
namespace {

using namespace std::string_view_literals;

// The characters for which str.isspace() is true.
constexpr std::array kSpaces = {
    "\t"sv,           "\n"sv,           "\v"sv,           "\f"sv,           "\r"sv,
    "\x1c"sv,         "\x1d"sv,         "\x1e"sv,         "\x1f"sv,         " "sv,
    "\xC2\x85"sv,     "\xC2\xA0"sv,     "\xE1\x9A\x80"sv, "\xE2\x80\x80"sv, "\xE2\x80\x81"sv,
    "\xE2\x80\x82"sv, "\xE2\x80\x83"sv, "\xE2\x80\x84"sv, "\xE2\x80\x85"sv, "\xE2\x80\x86"sv,
    "\xE2\x80\x87"sv, "\xE2\x80\x88"sv, "\xE2\x80\x89"sv, "\xE2\x80\x8A"sv, "\xE2\x80\xA8"sv,
    "\xE2\x80\xA9"sv, "\xE2\x80\xAF"sv, "\xE2\x81\x9F"sv, "\xE3\x80\x80"sv};

}  // namespace

std::string_view python_strip(std::string_view text) {
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (const auto* space = kSpaces.end();
       (space = std::ranges::find_if(kSpaces, begins)) != kSpaces.end();)
    text.remove_prefix(space->size());
  for (const auto* space = kSpaces.end();
       (space = std::ranges::find_if(kSpaces, ends)) != kSpaces.end();)
    text.remove_suffix(space->size());
  return text;
}

}  // namespace muo::data
