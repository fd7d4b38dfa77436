#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer/byte_pair_encoding.h"
#include "data/tokenizer/text_splitter.h"
#include "data/tokenizer/token_finder.h"

namespace muo::data {

// The definition of a byte-level BPE tokenizer, whatever file format it comes from.
struct BpeDefinition {
  std::vector<Split> splits;  // applied in order to cut text into pieces
  Vocabulary vocabulary;      // without special and added tokens
  std::vector<Merge> merges;
  bool whole_pieces = false;          // see BytePairEncoding
  std::vector<SpecialToken> special;  // sorted by id
  // Tokens that are not special, but are matched before the text is split. The vocabulary may
  // contain their ids as well.
  std::vector<SpecialToken> literals;
  bool nfc = false;                               // text between literals is normalized by to_nfc()
  std::vector<SpecialToken> later_literals = {};  // matched after normalization
};

class BpeTokenizer final : public Tokenizer {
 public:
  // `source` names the definition in error messages. Throws InputError for duplicate ids or texts
  // among added tokens, for special tokens with the id of another token, and for whatever
  // BytePairEncoding and TextSplitter reject.
  BpeTokenizer(BpeDefinition definition, std::string_view source);

  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                     std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] bool cuts_text() const override {
    return !nfc_ && literals_.empty() && later_literals_.empty() && splitter_.cuts_text();
  }
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const override;
  [[nodiscard]] std::span<const SpecialToken> special_tokens() const override { return special_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

 private:
  [[nodiscard]] std::array<std::span<const SpecialToken>, 3> added_tokens() const {
    return {special_, literals_.tokens(), later_literals_.tokens()};
  }

  std::vector<SpecialToken> special_;
  TokenFinder literals_;
  bool nfc_;
  TokenFinder later_literals_;
  std::string fingerprint_;
  TextSplitter splitter_;
  BytePairEncoding encoding_;
  std::int64_t vocab_size_ = 0;
};

// Reads the definition from a file that open_tokenizer() accepts. `pattern` and `special` apply to
// ranks of tiktoken (read_tiktoken_file); with a tokenizer.json, they are an InputError.
BpeDefinition read_bpe_definition(const std::filesystem::path& name, std::string_view pattern = {},
                                  const std::vector<SpecialToken>& special = {});

}  // namespace muo::data
