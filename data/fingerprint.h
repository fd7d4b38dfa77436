#pragma once

#include <cstdint>
#include <filesystem>

#include "data/token_data.h"

namespace muo::data {

// What tells contents of the same size apart: CRC-32 (zlib) of all of them, or, of many, of blocks
// of 64 KiB that are spread evenly, the first and the last among them. An edit between two blocks
// that changes no size goes unnoticed.

// Of a file; read whole up to 1 MiB. Throws InputError if it cannot be read.
std::uint32_t file_fingerprint(const std::filesystem::path& path);
// Of tokens; read whole up to 16 Mi.
std::uint32_t token_fingerprint(const TokenData& data);

}  // namespace muo::data
