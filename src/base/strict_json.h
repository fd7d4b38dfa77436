#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string_view>

namespace muo {

// Parses untrusted JSON. Throws InputError, "WHAT: reason", for a syntax error, a number out of
// range, an encoding other than UTF-8, nesting beyond 64 levels, or an object with a duplicate key
// (which parsers resolve differently).
nlohmann::json parse_strict_json(std::string_view text, std::string_view what);

// As parse_strict_json(), for text that may be skipped: returns a discarded value instead of
// throwing.
nlohmann::json try_strict_json(std::string_view text);

// As parse_strict_json(), for the output of Python's json module: reads NaN, Infinity and
// -Infinity, which JSON lacks, and numbers beyond the range of a double as null.
nlohmann::json parse_python_json(std::string_view text, std::string_view what);

}  // namespace muo
