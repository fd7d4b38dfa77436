#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/file_bytes.h"
#include "data/input_files.h"
#include "data/token_data.h"

namespace muo::data {

// A kind of token shard: 256 little-endian int32, the first three of them magic, version and the
// number of tokens, then so many tokens and nothing else.
struct ShardFormat {
  std::int32_t magic = 0, version = 0;
  std::size_t token_bytes = 0;  // 2 or 4, unsigned
};
inline constexpr std::size_t kShardHeaderInts = 256;
inline constexpr std::size_t kShardHeaderBytes = kShardHeaderInts * sizeof(std::int32_t);
// llm.c's and modded-nanogpt's, for up to 65,536 ids; and llm.c's for more (its Llama 3).
inline constexpr ShardFormat kNarrowShard = {20240520, 1, 2};
inline constexpr ShardFormat kWideShard = {20240801, 7, 4};

struct TokenShard {
  FileBytes file;
  std::span<const std::byte> tokens;  // in `file`: all of them, or those on one side of a split
  std::size_t token_bytes = 2;

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(tokens.size() / token_bytes);
  }
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
};

// Whether the file starts with one of the magic numbers.
bool looks_like_shard(const std::filesystem::path& path);

// Checks everything: header, size, and that each id is below `vocab_size`. Throws InputError.
TokenShard open_shard(const std::filesystem::path& path, std::int64_t vocab_size);

// What the ids stand for is told by options.tokenizer, if that is a file; or by a tokenizer or
// a manifest.json in the folder of the first shard (data/shard_manifest.h); else it is unknown. A
// manifest that names another tokenizer is an InputError, as is one that lists other counts.
// The shards of `files` and, for `val`: all of `val_files`; or, if there are none, those of
// `files` with "val" in their name; or the last of several; or the tail of the only one.
Corpus open_shards(const DataOptions& options, std::span<const InputFile> files,
                   std::span<const InputFile> val_files);

}  // namespace muo::data
