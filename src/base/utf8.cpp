#include "base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace muo {

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte_at = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
    const std::uint8_t lead = byte_at(i++);
    if (lead < 0x80) continue;
    const int tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4) return false;
    // Of the second byte only: what would be overlong, a surrogate or too large.
    const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int k = 0; k < tail; ++k, ++i) {
      if (i == text.size()) return false;
      const std::uint8_t next = byte_at(i);
      if (next < (k == 0 ? low : 0x80) || next > (k == 0 ? high : 0xBF)) return false;
    }
  }
  return true;
}

}  // namespace muo
