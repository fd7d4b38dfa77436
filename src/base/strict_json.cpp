#include "base/strict_json.h"

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

#include "base/check.h"

namespace muo {

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

}  // namespace muo
