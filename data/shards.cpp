#include "data/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/concat_data.h"

namespace muo {
namespace {

constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kHeaderBytes = kHeaderInts * sizeof(std::int32_t);
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersion = 1;
constexpr std::int32_t kLlama3Magic = 20240801;  // llm.c's other kind, uint32 tokens

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw InputError(path.native() + ": " + what);
}

void check_header(const std::filesystem::path& path, std::span<const std::byte> bytes,
                  std::int32_t magic, std::int32_t version, std::int32_t count) {
  if (magic != kMagic)
    fail(path, fmt::format("not a token shard: its first number is {}, not {}{}", magic, kMagic,
                           magic == kLlama3Magic
                               ? " (uint32 tokens of llm.c's Llama 3; write uint16 shards)"
                               : "; write shards with a header, as llm.c and modded-nanogpt do"));
  if (version != kVersion)
    fail(path, fmt::format("shard version {}, but only version {} (uint16 tokens) is known; "
                           "write it again in that version",
                           version, kVersion));
  if (count <= 0)
    fail(path,
         fmt::format("the header says {} tokens; leave the file out or write it again", count));
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto expected = static_cast<std::int64_t>(kHeaderBytes) + 2 * std::int64_t{count};
  if (size != expected)
    fail(path, fmt::format("{}: {} bytes, but its header says {} tokens, so {} bytes; copy or "
                           "write it again",
                           size < expected ? "truncated" : "bytes after the last token", size,
                           count, expected));
}

void check_ids(const std::filesystem::path& path, std::span<const std::uint16_t> tokens,
               std::int64_t vocab_size) {
  if (vocab_size > std::numeric_limits<std::uint16_t>::max()) return;
  // A maximum vectorises, a search for the first bad id does not.
  std::uint16_t largest = 0;
  for (const std::uint16_t token : tokens)
    largest = std::max(largest, token);
  if (largest < vocab_size) return;
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::uint16_t token) { return token >= vocab_size; });
  fail(path,
       fmt::format("token {} at position {} is outside the vocabulary of {} (the largest id in "
                   "this file is {}); give the --vocab-size that the shards were written with",
                   *bad, bad - tokens.begin(), vocab_size, largest));
}

bool is_val(const InputFile& file) {
  return file.path.filename().native().find("val") != std::string::npos;
}

std::string shard_count(std::size_t count) {
  return fmt::format("{} shard{}", count, count == 1 ? "" : "s");
}

}  // namespace

bool looks_like_shard(const std::filesystem::path& path) {
  std::array<char, sizeof(kMagic)> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  std::int32_t magic = 0;
  std::memcpy(&magic, start.data(), sizeof magic);
  return magic == kMagic;
}

void Shard::read(std::int64_t begin, std::span<std::int32_t> out) const {
  std::ranges::copy(tokens.subspan(static_cast<std::size_t>(begin), out.size()), out.begin());
}

Shard open_shard(const std::filesystem::path& path, std::int64_t vocab_size) {
  const FileBytes file(path);
  const auto bytes = file.bytes();
  if (bytes.empty()) fail(path, "the file is empty; give .bin token shards");
  if (bytes.size() < kHeaderBytes)
    fail(path, fmt::format("truncated: {} bytes, less than the {} of a shard's header; copy or "
                           "write it again",
                           bytes.size(), kHeaderBytes));
  std::array<std::int32_t, 3> header{};
  std::memcpy(header.data(), bytes.data(), sizeof header);
  check_header(path, bytes, header[0], header[1], header[2]);
  const std::span<const std::uint16_t> tokens{
      reinterpret_cast<const std::uint16_t*>(bytes.data() + kHeaderBytes),
      static_cast<std::size_t>(header[2])};
  check_ids(path, tokens, vocab_size);
  return {.file = file, .tokens = tokens};
}

Corpus open_shards(const DataOptions& options, std::span<const InputFile> files,
                   std::span<const InputFile> val_files) {
  const std::int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size : kByteVocab;
  const auto named_val = std::count_if(files.begin(), files.end(), is_val);
  // If every name says "val", none of them tells the two apart.
  const bool by_name = named_val > 0 && named_val < std::ssize(files);
  std::vector<Shard> train;
  std::vector<Shard> val;
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
    const auto tokens = train.front().tokens;
    const auto tail = static_cast<std::size_t>(
        std::llround(static_cast<double>(tokens.size()) * options.val_fraction));
    val.push_back({.file = train.front().file, .tokens = tokens.last(tail)});
    train.front().tokens = tokens.first(tokens.size() - tail);
  }
  const std::string train_shards = shard_count(train.size());
  Corpus corpus{.train = std::make_unique<ConcatData<Shard>>(std::move(train)),
                .val = std::make_unique<ConcatData<Shard>>(std::move(val)),
                .vocab_size = vocab_size,
                .token_bytes = {},
                .description = {},
                .is_text = false};
  corpus.description =
      fmt::format("token shards: {}, {} tokens to train on; {} tokens held out ({})", train_shards,
                  corpus.train->size(), corpus.val->size(), split);
  return corpus;
}

}  // namespace muo
