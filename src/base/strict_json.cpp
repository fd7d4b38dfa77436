#include "base/strict_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"

namespace muo {
namespace {

// Outside of strings.
std::string with_nulls_for_nonfinite(std::string_view text) {
  constexpr std::array<std::string_view, 3> kNumbers = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto* const number = std::ranges::find_if(
        kNumbers, [&](std::string_view word) { return text.substr(at).starts_with(word); });
    if (!quoted && number != kNumbers.end()) {
      out += "null";
      at += number->size();
      continue;
    }
    if (text[at] == '"') quoted = !quoted;
    if (quoted && text[at] == '\\') out += text[at++];
    if (at < text.size()) out += text[at++];
  }
  return out;
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, std::string_view what) {
  using nlohmann::json;
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth)
      throw InputError(concat(what, ": JSON nested deeper than ", kMaxDepth, " levels"));
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(value.get_ref<const std::string&>()).second)
      throw InputError(concat(what, ": the key ", value.dump(), " occurs twice"));
    return true;
  };
  try {
    return json::parse(text, on_event);
  } catch (const json::exception& error) {
    throw InputError(concat(what, ": malformed JSON: ", error.what()));
  }
}

nlohmann::json try_strict_json(std::string_view text) {
  try {
    return parse_strict_json(text, "");
  } catch (const InputError&) {
    // NOLINTNEXTLINE(modernize-return-braced-init-list): braces would make an array
    return nlohmann::json(nlohmann::json::value_t::discarded);
  }
}

nlohmann::json parse_python_json(std::string_view text, std::string_view what) {
  try {
    return parse_strict_json(text, what);
  } catch (const InputError&) {
    const std::string finite = with_nulls_for_nonfinite(text);
    if (finite == text) throw;
    return parse_strict_json(finite, what);
  }
}

}  // namespace muo
