#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::data {

// A YAML value whose scalars are text; the caller interprets numbers.
struct YamlValue {
  enum class Kind : std::uint8_t { kScalar, kSequence, kMapping };
  Kind kind = Kind::kScalar;
  std::int64_t line = 0;  // counted from 1
  std::string text = {};  // the text of a scalar
  bool quoted = false;
  std::vector<YamlValue> items = {};                            // the items of a sequence
  std::vector<std::pair<std::string, YamlValue>> members = {};  // the entries of a mapping

  [[nodiscard]] const YamlValue* find(std::string_view key) const;  // null if there is none
  // Whether YAML parses the text as null.
  [[nodiscard]] bool is_null() const;
};

// Parses the single document in `text`, which may be untrusted. Throws InputError, "WHAT: line N:
// reason", for a syntax error, several documents, duplicate keys, keys that are not scalars,
// nesting beyond 64 levels, and for aliases and tags, which are not supported.
YamlValue parse_yaml(std::string_view text, std::string_view what);

}  // namespace muo::data
