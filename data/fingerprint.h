#pragma once

#include <cstdint>
#include <filesystem>

#include "data/token_data.h"

namespace muo::data {

// Fingerprints that distinguish contents of the same size: the CRC-32 (zlib) of all bytes or, for
// large contents, of evenly spaced blocks of 64 KiB including the first and the last one. An edit
// between these blocks that does not change the size goes unnoticed.

// Returns the fingerprint of a file; files up to 1 MiB are read completely. Throws InputError if
// the file cannot be read.
std::uint32_t file_fingerprint(const std::filesystem::path& path);
// Returns the fingerprint of tokens; up to 16 Mi tokens are read completely.
std::uint32_t token_fingerprint(const TokenData& data);

}  // namespace muo::data
