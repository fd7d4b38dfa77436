#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muo {

// A number of bytes as people give it: "900MiB", "12GB", "1.5GiB", "4096".
struct ByteSize {
  std::int64_t bytes = 0;
};

// The size that is all of `text`: a number, and behind it at most one of B, kB, MB, GB, TB (powers
// of 1000), KiB, MiB, GiB and TiB (powers of 1024). Fractions of a byte are cut off. Empty: it is
// none, is below 1 or over 2^60 bytes.
[[nodiscard]] std::optional<ByteSize> parse_byte_size(std::string_view text);

// In the largest unit in which the number is whole, so that it is parsed as what it was.
[[nodiscard]] std::string to_text(ByteSize size);

}  // namespace muo
