#include "base/strict_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace muo {
namespace {

bool is_nonfinite(const std::string& number) {
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  return *end == '\0' && !std::isfinite(value);
}

// Replaces non-finite numbers outside of strings by null.
std::string with_nulls_for_nonfinite(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords = {"NaN", "Infinity", "-Infinity"};
  std::string out;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (!quoted) {
      const auto* const word = std::ranges::find_if(
          kWords, [&](std::string_view each) { return rest.starts_with(each); });
      const std::string number(
          word == kWords.end() ? rest.substr(0, rest.find_first_not_of("+-.0123456789eE")) : *word);
      out += is_nonfinite(number) ? "null" : number;
      at += number.size();
      if (!number.empty()) continue;
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
  if (const std::string_view encoding = other_encoding(text); !encoding.empty())
    throw InputError(concat(what, ": ", encoding, ", not UTF-8; ", conversion_advice(encoding)));
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys;  // one set for each open object
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
    const std::string_view why = error.what();  // after "[json.exception.parse_error.101] "
    throw InputError(concat(what, ": malformed JSON: ", why.substr(why.find("] ") + 2)));
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
