#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

struct ShardEntry {
  std::string file;  // its name in the folder of the manifest
  std::int64_t tokens = 0;
  std::uint32_t checksum = 0;  // CRC-32 (zlib) of the whole file
  bool held_out = false;
};

// manifest.json beside token shards, as `muograph tokenize` writes it:
//   {"format": "muograph-shards", "version": 1, "complete", "tokenizer": {"file", "fingerprint",
//    "vocab_size", "bos"}, "documents", "text_bytes", "text_crc32", "shards": [{"file", "tokens",
//    "crc32", "held_out"}], "source": {...}, "next": {"documents", "tokens"}, "token_bytes": [...]}
struct ShardManifest {
  bool complete = false;
  std::string tokenizer_file;  // in the same folder; empty: the byte tokenizer
  std::string fingerprint;     // Tokenizer::fingerprint()
  std::int64_t vocab_size = 0;
  std::int64_t bos = 0;             // that starts each document
  std::int64_t documents = 0;       // that the shards hold to their end
  std::int64_t text_bytes = 0;      // of them
  std::uint32_t text_checksum = 0;  // document_checksum() of them
  std::vector<ShardEntry> shards;
  std::string source = "{}";  // JSON of what was tokenized and how: an interrupted run goes on with
                              // the same only
  std::int64_t next_tokens = 0;  // of the document after `documents`, that the shards hold already
  std::vector<std::int32_t> token_bytes;  // bytes_of_tokens()
};

// CRC-32 (zlib) of what has the checksum `so_far`, 0 for nothing, followed by `bytes`.
std::uint32_t shard_checksum(std::uint32_t so_far, std::span<const std::byte> bytes);

// Of documents that have the checksum `so_far`, 0 for none, followed by one more.
std::uint32_t document_checksum(std::uint32_t so_far, std::string_view text);

inline constexpr const char* kShardManifestName = "manifest.json";

std::string shard_manifest_text(const ShardManifest& manifest);
// Throws InputError, naming `path`, for what is malformed.
ShardManifest parse_shard_manifest(std::string_view text, const std::filesystem::path& path);
// That of a folder, if there is one: JSON of another format is none. Throws InputError for what is
// no JSON: a manifest that was damaged.
std::optional<ShardManifest> find_shard_manifest(const std::filesystem::path& folder);

}  // namespace muo::data
