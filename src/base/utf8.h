#pragma once

#include <string_view>

namespace muo {

// Whether `text` is well-formed UTF-8 (RFC 3629): no overlong forms, surrogates or code points
// beyond U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace muo
