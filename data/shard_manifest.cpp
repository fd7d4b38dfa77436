#include "data/shard_manifest.h"

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/strict_json.h"

namespace muo::data {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "muograph-shards";

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path) {}

  template <class... What>
  [[noreturn]] void fail(const What&... what) const {
    throw InputError(concat(path_.native(), ": ", what..., "; tokenize again"));
  }
  const json& at(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) fail("'", key, "' is missing");
    return object[key];
  }
  [[nodiscard]] std::int64_t number(const json& object, const char* key,
                                    std::int64_t most = 1LL << 60) const {
    const json& value = at(object, key);
    if (!value.is_number_integer() || value < 0 || value > most)
      fail("'", key, "' is not a number from 0 to ", most);
    return value.get<std::int64_t>();
  }
  [[nodiscard]] std::uint32_t checksum(const json& object, const char* key) const {
    return static_cast<std::uint32_t>(
        number(object, key, std::numeric_limits<std::uint32_t>::max()));
  }
  [[nodiscard]] bool flag(const json& object, const char* key) const {
    if (!at(object, key).is_boolean()) fail("'", key, "' is neither true nor false");
    return at(object, key).get<bool>();
  }
  [[nodiscard]] std::string text(const json& object, const char* key) const {
    if (!at(object, key).is_string()) fail("'", key, "' is not a string");
    return at(object, key).get<std::string>();
  }
  // Returns a file name that must not contain a folder.
  [[nodiscard]] std::string file_name(const json& object, const char* key) const {
    std::string name = text(object, key);
    if (std::filesystem::path(name).filename() != name || name == "." || name == "..")
      fail("'", key, "' is not the name of a file");
    return name;
  }

 private:
  const std::filesystem::path& path_;
};

}  // namespace

std::uint32_t shard_checksum(std::uint32_t so_far, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(so_far, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t document_checksum(std::uint32_t so_far, std::string_view text) {
  const std::array<std::uint64_t, 1> bytes = {text.size()};
  return shard_checksum(shard_checksum(so_far, std::as_bytes(std::span(bytes))),
                        std::as_bytes(std::span(text)));
}

std::string shard_manifest_text(const ShardManifest& manifest) {
  json shards = json::array();
  for (const ShardEntry& shard : manifest.shards)
    shards.push_back({{"file", shard.file},
                      {"tokens", shard.tokens},
                      {"crc32", shard.checksum},
                      {"held_out", shard.held_out}});
  const json object = {
      {"format", kFormat},
      {"version", 1},
      {"complete", manifest.complete},
      {"tokenizer",
       {{"file", manifest.tokenizer_file},
        {"fingerprint", manifest.fingerprint},
        {"vocab_size", manifest.vocab_size},
        {"bos", manifest.bos}}},
      {"documents", manifest.documents},
      {"text_bytes", manifest.text_bytes},
      {"text_crc32", manifest.text_checksum},
      {"shards", shards},
      {"source", json::parse(manifest.source)},
      {"next", {{"documents", manifest.documents}, {"tokens", manifest.next_tokens}}},
      {"token_bytes", manifest.token_bytes}};
  return object.dump() + "\n";
}

ShardManifest parse_shard_manifest(std::string_view text, const std::filesystem::path& path) {
  const json object = parse_strict_json(text, path.native());
  const Reader reader(path);
  if (reader.text(object, "format") != kFormat || reader.number(object, "version") != 1)
    reader.fail("not version 1 of ", kFormat);
  ShardManifest out;
  out.complete = reader.flag(object, "complete");
  const json& tokenizer = reader.at(object, "tokenizer");
  if (!reader.text(tokenizer, "file").empty())
    out.tokenizer_file = reader.file_name(tokenizer, "file");
  out.fingerprint = reader.text(tokenizer, "fingerprint");
  constexpr std::int64_t kMaxIds = 1 << 24;
  out.vocab_size = reader.number(tokenizer, "vocab_size", kMaxIds);
  out.bos = reader.number(tokenizer, "bos", kMaxIds);
  out.documents = reader.number(object, "documents");
  out.text_bytes = reader.number(object, "text_bytes");
  out.text_checksum = reader.checksum(object, "text_crc32");
  const json& shards = reader.at(object, "shards");
  if (!shards.is_array()) reader.fail("'shards' is not a list");
  for (const json& shard : shards)
    out.shards.push_back({.file = reader.file_name(shard, "file"),
                          .tokens = reader.number(shard, "tokens"),
                          .checksum = reader.checksum(shard, "crc32"),
                          .held_out = reader.flag(shard, "held_out")});
  out.source = reader.at(object, "source").dump();
  out.next_tokens = reader.number(reader.at(object, "next"), "tokens");
  const json& bytes = reader.at(object, "token_bytes");
  if (!bytes.is_array()) reader.fail("'token_bytes' is not a list");
  for (const json& value : bytes) {
    if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<std::int32_t>::max())
      reader.fail("'token_bytes' has a value that is not a size");
    out.token_bytes.push_back(value.get<std::int32_t>());
  }
  return out;
}

std::optional<ShardManifest> find_shard_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kShardManifestName;
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  const FileBytes file(path);
  if (file.text().find(kFormat) == std::string_view::npos && json::accept(file.text()))
    return std::nullopt;
  return parse_shard_manifest(file.text(), path);
}

}  // namespace muo::data
