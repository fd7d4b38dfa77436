#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/file_bytes.h"
#include "data/input_files.h"
#include "data/token_data.h"

namespace muo::data {

// A format of token shards: 256 little-endian int32, the first three of which are magic, version
// and number of tokens, followed by exactly that many tokens.
struct ShardFormat {
  std::int32_t magic = 0, version = 0;
  std::size_t token_bytes = 0;  // 2 or 4, unsigned
};
inline constexpr std::size_t kShardHeaderInts = 256;
inline constexpr std::size_t kShardHeaderBytes = kShardHeaderInts * sizeof(std::int32_t);
// The formats of llm.c: kNarrowShard, which modded-nanogpt also uses, for up to 65,536 ids, and
// kWideShard (that of its Llama 3) for more.
inline constexpr ShardFormat kNarrowShard = {20240520, 1, 2};
inline constexpr ShardFormat kWideShard = {20240801, 7, 4};

struct TokenShard {
  FileBytes file;
  std::span<const std::byte> tokens;  // in `file`: all tokens, or those on one side of a split
  std::size_t token_bytes = 2;

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(tokens.size() / token_bytes);
  }
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
};

// Whether the file starts with one of the magic numbers.
bool looks_like_shard(const std::filesystem::path& path);

// Opens a shard and checks its header, its size, and that each id is below `vocab_size`.
// Throws InputError.
TokenShard open_shard(const std::filesystem::path& path, std::int64_t vocab_size);

// Opens the shards of `files` as training data. The held-out data are all of `val_files`; or, if
// there are none, those of `files` with "val" in their name; or the last of several files; or the
// tail of the only one. The tokenizer of the ids is options.tokenizer if that is a file, else the
// one named by a tokenizer or manifest.json in the folder of the first shard
// (data/shard_manifest.h); else it is unknown. A manifest that names another tokenizer or lists
// other counts is an InputError.
Corpus open_shards(const DataOptions& options, std::span<const InputFile> files,
                   std::span<const InputFile> val_files);

}  // namespace muo::data
