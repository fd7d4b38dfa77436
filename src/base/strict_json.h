#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string_view>

namespace muo {

// Parses JSON that may be hostile: throws InputError, "WHAT: reason", for a syntax error, a number
// that does not fit, other encodings than UTF-8, nesting beyond 64 levels, and for a key that an
// object holds twice (which parsers otherwise resolve each in its own way).
nlohmann::json parse_strict_json(std::string_view text, std::string_view what);

// The same for what may be passed over; a discarded value, which is of no type, where that throws.
nlohmann::json try_strict_json(std::string_view text);

// The same of what Python's json module reads: NaN, Infinity and -Infinity, which it writes and
// JSON lacks, are null, and so is a number beyond what a double holds.
nlohmann::json parse_python_json(std::string_view text, std::string_view what);

}  // namespace muo
