#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muo::data {

// What a YAML document holds, as text: who reads it knows which ones are numbers.
struct YamlValue {
  enum class Kind : std::uint8_t { kScalar, kSequence, kMapping };
  Kind kind = Kind::kScalar;
  std::int64_t line = 0;  // from 1 on
  std::string text = {};  // of a scalar
  bool quoted = false;
  std::vector<YamlValue> items = {};                            // of a sequence
  std::vector<std::pair<std::string, YamlValue>> members = {};  // of a mapping

  [[nodiscard]] const YamlValue* find(std::string_view key) const;  // null: there is none
  // Whether YAML takes it for null.
  [[nodiscard]] bool is_null() const;
};

// The one document of `text`, which may be hostile: throws InputError, "WHAT: line N: reason", for
// a syntax error, several documents, keys that are not scalars or come twice, nesting beyond 64
// levels, and for aliases and tags, which are not taken.
YamlValue parse_yaml(std::string_view text, std::string_view what);

}  // namespace muo::data
