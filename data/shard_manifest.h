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
  std::string file;  // name, in the folder of the manifest
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
  std::int64_t bos = 0;             // id that starts each document
  std::int64_t documents = 0;       // documents that the shards hold completely
  std::int64_t text_bytes = 0;      // bytes of text of those documents
  std::uint32_t text_checksum = 0;  // their document_checksum()
  std::vector<ShardEntry> shards;
  // JSON of the input and the options; an interrupted run can be resumed only with the same ones.
  std::string source = "{}";
  std::int64_t next_tokens = 0;           // tokens already written of the next document
  std::vector<std::int32_t> token_bytes;  // bytes_of_tokens()
};

// Extends `so_far`, the CRC-32 (zlib) of the preceding data (0 if there is none), by `bytes`.
std::uint32_t shard_checksum(std::uint32_t so_far, std::span<const std::byte> bytes);

// Extends `so_far`, the checksum of the preceding documents (0 if there are none), by one document.
std::uint32_t document_checksum(std::uint32_t so_far, std::string_view text);

inline constexpr const char* kShardManifestName = "manifest.json";

std::string shard_manifest_text(const ShardManifest& manifest);
// Throws InputError, which names `path`, if the text is malformed.
ShardManifest parse_shard_manifest(std::string_view text, const std::filesystem::path& path);
// Returns the manifest of a folder, if there is one; JSON of another format is ignored. Throws
// InputError if the file is not JSON, because it is then a damaged manifest.
std::optional<ShardManifest> find_shard_manifest(const std::filesystem::path& folder);

}  // namespace muo::data
