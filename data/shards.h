#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/file_bytes.h"
#include "data/input_files.h"
#include "data/token_data.h"

namespace muo {

// The token shards of llm.c and modded-nanogpt: 256 little-endian int32, the first three of them
// 20240520 (magic), 1 (version) and the number of tokens, then so many uint16 and nothing else.
struct Shard {
  FileBytes file;
  std::span<const std::uint16_t> tokens;  // in `file`: all of them, or those on one side of a split

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
};

// Whether the file starts with the magic number.
bool looks_like_shard(const std::filesystem::path& path);

// Checks everything: header, size, and that each id is below `vocab_size`. Throws InputError.
Shard open_shard(const std::filesystem::path& path, std::int64_t vocab_size);

// The shards of `files` and, for `val`: all of `val_files`; or, if there are none, those of
// `files` with "val" in their name; or the last of several; or the tail of the only one.
Corpus open_shards(const DataOptions& options, std::span<const InputFile> files,
                   std::span<const InputFile> val_files);

}  // namespace muo
