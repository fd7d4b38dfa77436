#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muo {

// A number of bytes that a user writes as "900MiB", "12GB", "1.5GiB" or "4096".
struct ByteSize {
  std::int64_t bytes = 0;
};

// Parses all of `text` as a size: a number, optionally followed by one of B, kB, MB, GB, TB (powers
// of 1000), KiB, MiB, GiB and TiB (powers of 1024). Fractions of a byte are truncated. Returns
// nullopt if `text` is not a size, or if the size is below 1 or above 2^60 bytes.
[[nodiscard]] std::optional<ByteSize> parse_byte_size(std::string_view text);

// The size in the largest unit in which the number is whole, so that parsing returns the same size.
[[nodiscard]] std::string to_text(ByteSize size);

}  // namespace muo
