#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string_view>

namespace muo {

// Parses untrusted JSON. Throws InputError, "WHAT: reason", for a syntax error, a number out of
// range, an encoding other than UTF-8, nesting beyond 64 levels, and an object with a duplicate key
// (which parsers otherwise resolve differently).
nlohmann::json parse_strict_json(std::string_view text, std::string_view what);

// The same for text that may be skipped: returns a discarded value where parse_strict_json()
// throws.
nlohmann::json try_strict_json(std::string_view text);

// The same for the output of Python's json module: NaN, Infinity and -Infinity, which JSON lacks,
// and numbers beyond the range of a double are read as null.
nlohmann::json parse_python_json(std::string_view text, std::string_view what);

}  // namespace muo
