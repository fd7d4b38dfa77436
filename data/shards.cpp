#include "data/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/installed_file.h"
#include "base/threads.h"
#include "data/concat_data.h"
#include "data/shard_manifest.h"

namespace muo::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw InputError(path.native() + ": " + what);
}

const ShardFormat* find_format(std::int32_t magic) {
  for (const ShardFormat* const format : {&kNarrowShard, &kWideShard})
    if (format->magic == magic) return format;
  return nullptr;
}

const ShardFormat& check_header(const std::filesystem::path& path, std::span<const std::byte> bytes,
                                std::int32_t magic, std::int32_t version, std::int32_t count) {
  const ShardFormat* const format = find_format(magic);
  if (format == nullptr && bytes.size() >= sizeof magic)
    fail(path, fmt::format("not a token shard: its first number is {}, neither {} nor {}; "
                           "convert nanoGPT's ids, which have no header, by {}",
                           magic, kNarrowShard.magic, kWideShard.magic,
                           installed_word("scripts/convert_nanogpt_data.py")));
  if (bytes.size() < kShardHeaderBytes)
    fail(path, fmt::format("truncated: {} bytes, fewer than the {} of a shard's header; copy or "
                           "write it again",
                           bytes.size(), kShardHeaderBytes));
  if (version != format->version)
    fail(path, fmt::format("shard version {}, but for magic {} only version {} (uint{} tokens) is "
                           "supported; write it again in that version",
                           version, magic, format->version, 8 * format->token_bytes));
  if (count <= 0)
    fail(path,
         fmt::format("the header says {} tokens; leave the file out or write it again", count));
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto expected = static_cast<std::int64_t>(kShardHeaderBytes) +
                        static_cast<std::int64_t>(format->token_bytes) * count;
  if (size != expected)
    fail(path, fmt::format("{}: {} bytes, but its header says {} tokens, i.e. {} bytes; copy or "
                           "write it again",
                           size < expected ? "truncated" : "bytes after the last token", size,
                           count, expected));
  return *format;
}

template <class Id>
std::span<const Id> ids_of(const TokenShard& shard) {
  return {reinterpret_cast<const Id*>(shard.tokens.data()), shard.tokens.size() / sizeof(Id)};
}

template <class Id>
void check_ids(const std::filesystem::path& path, std::span<const Id> tokens,
               std::int64_t vocab_size) {
  if (vocab_size > std::numeric_limits<Id>::max()) return;
  // Computing the maximum is vectorised; a search for the first bad id would not be.
  Id largest = 0;
  for (const Id token : tokens)
    largest = std::max(largest, token);
  if (largest < vocab_size) return;
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](Id token) { return token >= vocab_size; });
  fail(path,
       fmt::format("token {} at position {} is outside the vocabulary of {} (the largest id in "
                   "this file is {}); give the --vocab-size or --tokenizer that the shards were "
                   "written with",
                   *bad, bad - tokens.begin(), vocab_size, largest));
}

// Whether a word in the name says so: "fineweb_val_000000.bin", but not "retrieval.bin".
bool is_val(const InputFile& file) {
  const std::string name = file.path.filename().native();
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  for (auto begin = name.begin(); begin != name.end();) {
    begin = std::find_if(begin, name.end(), is_letter);
    const auto end = std::find_if_not(begin, name.end(), is_letter);
    std::string word(begin, end);
    std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == "val" || word == "valid" || word == "validation") return true;
    begin = end;
  }
  return false;
}

// Returns the tokenizer of the ids in `folder`, as open_tokenizer() takes it; empty if unknown.
std::filesystem::path find_tokenizer(const DataOptions& options,
                                     const std::filesystem::path& folder, bool has_manifest) {
  if (options.tokenizer != "byte") return options.tokenizer;
  std::filesystem::path found = find_tokenizer_in(folder);
  if (found.empty() && has_manifest) found = "byte";
  return found;
}

// Throws InputError if the file is not the one that its manifest lists.
void check_entry(const std::filesystem::path& path, const ShardEntry& entry, bool is_used) {
  std::error_code missing;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, missing));
  if (missing) fail(path, "missing, but listed in the manifest; copy it again, or tokenize again");
  const std::int64_t tokens = bytes - static_cast<std::int64_t>(kShardHeaderBytes);
  if (tokens != 2 * entry.tokens && tokens != 4 * entry.tokens)
    fail(path, fmt::format("{} bytes, but the manifest lists {} tokens; copy it again, or "
                           "tokenize again",
                           bytes, entry.tokens));
  if (!is_used) return;
  const FileBytes file(path);
  if (const std::uint32_t checksum = shard_checksum(0, file.bytes()); checksum != entry.checksum)
    fail(path, fmt::format("damaged: its CRC-32 is {:08x}, the manifest's {:08x}; copy it again, "
                           "or tokenize again",
                           checksum, entry.checksum));
}

// Checks that each folder in use has all shards that its manifest lists, and that `files` are byte
// by byte as they were written. Throws InputError.
void check_manifests(std::span<const InputFile> files) {
  std::set<std::filesystem::path> folders;
  std::set<std::filesystem::path> used;
  for (const InputFile& file : files) {
    folders.insert(file.path.parent_path());
    used.insert(file.path);
  }
  for (const std::filesystem::path& folder : folders) {
    const std::optional<ShardManifest> manifest = find_shard_manifest(folder);
    if (!manifest) continue;
    if (!manifest->complete)
      throw InputError(concat(folder.native(), ": tokenizing was interrupted after ",
                              manifest->documents,
                              " documents; rerun the same muograph tokenize command"));
    parallel_for(usable_cores(), manifest->shards.size(), [&](std::size_t i) {
      const ShardEntry& entry = manifest->shards[i];
      check_entry(folder / entry.file, entry, used.contains(folder / entry.file));
    });
  }
}

std::string shard_count(std::size_t count) {
  return fmt::format("{} shard{}", count, count == 1 ? "" : "s");
}

}  // namespace

bool looks_like_shard(const std::filesystem::path& path) {
  std::array<char, sizeof(std::int32_t)> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  std::int32_t magic = 0;
  std::memcpy(&magic, start.data(), sizeof magic);
  return find_format(magic) != nullptr;
}

void TokenShard::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto from = static_cast<std::size_t>(begin);
  if (token_bytes == sizeof(std::uint16_t)) {
    std::ranges::copy(ids_of<std::uint16_t>(*this).subspan(from, out.size()), out.begin());
    return;
  }
  std::ranges::transform(ids_of<std::uint32_t>(*this).subspan(from, out.size()), out.begin(),
                         [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
}

TokenShard open_shard(const std::filesystem::path& path, std::int64_t vocab_size) {
  const FileBytes file(path);
  const auto bytes = file.bytes();
  if (bytes.empty()) fail(path, "the file is empty; give .bin token shards");
  std::array<std::int32_t, 3> header{};
  std::memcpy(header.data(), bytes.data(), std::min(sizeof header, bytes.size()));
  const ShardFormat& format = check_header(path, bytes, header[0], header[1], header[2]);
  TokenShard shard{
      .file = file, .tokens = bytes.subspan(kShardHeaderBytes), .token_bytes = format.token_bytes};
  if (format.token_bytes == sizeof(std::uint16_t))
    check_ids(path, ids_of<std::uint16_t>(shard), vocab_size);
  else
    check_ids(path, ids_of<std::uint32_t>(shard), vocab_size);
  return shard;
}

Corpus open_shards(const DataOptions& options, std::span<const InputFile> files,
                   std::span<const InputFile> val_files) {
  check_manifests(files);
  check_manifests(val_files);
  const std::filesystem::path& first = files.front().path;
  const std::optional<ShardManifest> manifest = find_shard_manifest(first.parent_path());
  const std::filesystem::path name =
      find_tokenizer(options, first.parent_path(), manifest.has_value());
  const std::shared_ptr<const Tokenizer> tokenizer = name.empty() ? nullptr : open_tokenizer(name);
  if (tokenizer && manifest && manifest->fingerprint != tokenizer->fingerprint())
    throw InputError(concat("--tokenizer ", name.native(), ": its fingerprint is ",
                            tokenizer->fingerprint(), ", but ", first.native(), " was made with ",
                            manifest->fingerprint, "; give the tokenizer it was made with"));
  const std::int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size
                                  : tokenizer            ? tokenizer->vocab_size()
                                                         : kByteVocab;
  if (tokenizer && tokenizer->vocab_size() > vocab_size)
    throw InputError(concat("--vocab-size ", vocab_size, ": the tokenizer of the shards has ",
                            tokenizer->vocab_size(),
                            " ids; leave the option out, or give at least that many"));
  if (options.bos_token >= vocab_size)
    throw InputError(concat("--bos-token ", options.bos_token, ": the vocabulary has ", vocab_size,
                            " ids, counted from 0; give the id that begins documents"));
  const auto named_val = std::count_if(files.begin(), files.end(), is_val);
  // If every name says "val", the names do not distinguish training data from held-out data.
  const bool by_name = named_val > 0 && named_val < std::ssize(files);
  std::vector<TokenShard> train;
  std::vector<TokenShard> val;
  for (const InputFile& file : val_files)
    val.push_back(open_shard(file.path, vocab_size));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool held_out = val_files.empty() && !options.held_out_only && files.size() > 1 &&
                          (by_name ? is_val(files[i]) : i + 1 == files.size());
    (held_out ? val : train).push_back(open_shard(files[i].path, vocab_size));
  }
  std::string split = shard_count(val.size());
  if (val.empty() && !options.held_out_only) {
    split = "the end";
    TokenShard& only = train.front();
    const auto tail = static_cast<std::size_t>(
                          std::llround(static_cast<double>(only.size()) * options.val_fraction)) *
                      only.token_bytes;
    val.push_back(only);
    val.front().tokens = only.tokens.last(tail);
    only.tokens = only.tokens.first(only.tokens.size() - tail);
  }
  const std::string train_shards = shard_count(train.size());
  Corpus corpus{.train = std::make_unique<ConcatData<TokenShard>>(std::move(train)),
                .val = std::make_unique<ConcatData<TokenShard>>(std::move(val)),
                .vocab_size = vocab_size,
                .token_bytes = {},
                .description = {},
                .tokenizer = tokenizer,
                .tokenizer_name = name};
  if (tokenizer) corpus.token_bytes = bytes_of_tokens(*tokenizer);
  if (options.bos_token >= 0)
    corpus.bos = static_cast<std::int32_t>(options.bos_token);
  else if (tokenizer)
    corpus.bos = find_bos(*tokenizer);
  corpus.description =
      fmt::format("token shards: {}, {} tokens to train on; {} tokens held out ({})", train_shards,
                  corpus.train->size(), corpus.val->size(), split);
  return corpus;
}

}  // namespace muo::data
