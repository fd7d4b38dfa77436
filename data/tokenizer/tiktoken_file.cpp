#include "data/tokenizer/tiktoken_file.h"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace muo::data {
namespace {

// Decodes padded base64 (RFC 4648, section 4); empty if it is malformed.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t digit = 0;
    if (i + padding < text.size()) digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8)
      out += static_cast<char>(bits >> shift & 0xFF);
    bits = 0;
  }
  return out.substr(0, out.size() - padding);
}

struct KnownFile {
  std::int64_t ranks = 0;
  std::string_view pattern;
  std::vector<SpecialToken> special;
};

const KnownFile* find_known_file(std::int64_t ranks) {
  static const std::array<KnownFile, 4> known_files = {{
      {50256, "gpt2", {{"<|endoftext|>", 50256}}},
      {50280, "gpt2", {{"<|endoftext|>", 50256}}},
      {100256,
       "gpt4",
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998, "gpt4o", {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
  }};
  for (const KnownFile& known : known_files)
    if (known.ranks == ranks) return &known;
  return nullptr;
}

}  // namespace

BpeDefinition read_tiktoken_file(std::string_view text, std::string_view source,
                                 std::string_view pattern,
                                 const std::vector<SpecialToken>& special) {
  BpeDefinition definition;
  definition.whole_pieces = true;
  std::int64_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++line_number;
    const std::size_t newline = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, newline - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = newline + 1;
    if (line.empty()) continue;
    const auto fail = [&](const auto&... what) {
      throw InputError(concat(source, ": line ", line_number, ": ", what...));
    };
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::optional<std::string> bytes = from_base64(line.substr(0, space));
    std::int32_t rank = -1;
    const std::string_view number = line.substr(std::min(space + 1, line.size()));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
    constexpr std::int32_t kMaxRanks = 1 << 24;
    if (!bytes || error != std::errc() || end != number.data() + number.size() || rank < 0 ||
        rank >= kMaxRanks)
      fail("neither a tokenizer.json nor a SentencePiece model, and not tiktoken's 'BASE64 RANK'");
    if (!definition.vocabulary.bytes_of(rank).empty()) fail("rank ", rank, " occurs twice");
    if (definition.vocabulary.find(*bytes) >= 0) fail("the token of rank ", rank, " occurs twice");
    definition.vocabulary.add(*bytes, rank);
  }
  const std::int64_t ranks = definition.vocabulary.size();
  if (const KnownFile* const known = find_known_file(ranks); pattern.empty() && known != nullptr) {
    definition.splits = {read_split(known->pattern, source)};
    definition.special = known->special;
  } else if (pattern.empty()) {
    throw InputError(concat(source, ": ", ranks,
                            " ranks of tiktoken, without a split pattern: make a tokenizer.json of "
                            "them with 'muograph tokenizer convert --pattern NAME'"));
  } else {
    definition.splits = {read_split_of_ranks(pattern, source)};
    definition.special = special;
  }
  definition.merges = merges_by_rank(definition.vocabulary);
  return definition;
}

}  // namespace muo::data
