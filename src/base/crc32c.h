#pragma once

#include <cstdint>
#include <string_view>

namespace muo {

// CRC-32C (Castagnoli), the checksum of RFC 3720: reflected, with initial and final inversion.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace muo
