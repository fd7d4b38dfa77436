#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer/sentencepiece_encoder.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace muo::data {

// A tokenizer with a SentencePiece model. Text is normalized before it is encoded, so decoding need
// not return the same text. Control pieces are special tokens; user-defined pieces are matched in
// every text.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `file` is the contents of a model's file; `source` names it in errors. Throws InputError, also
  // if libsentencepiece is not installed.
  SentencePieceTokenizer(std::string_view file, std::string_view source);

  [[nodiscard]] std::int64_t vocab_size() const override;
  // Throws InputError for texts of more than 128 MiB: the library counts bytes as int, and
  // normalization can turn one byte into 13.
  std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                     std::vector<std::int32_t>& ids) const override;
  // Normalization rules and pieces may span any position, so text cannot be cut.
  [[nodiscard]] bool cuts_text() const override { return false; }
  // For a first token this includes the space of the dummy prefix.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const override;
  [[nodiscard]] std::unique_ptr<TextDecoder> text_decoder() const override;
  [[nodiscard]] std::span<const SpecialToken> special_tokens() const override { return special_; }
  [[nodiscard]] std::optional<std::int32_t> bos() const override { return bos_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

 private:
  class Decoder;

  std::string source_;
  SentencePieceModel model_;
  std::vector<std::string> bytes_;  // indexed by id
  std::vector<SpecialToken> special_;
  std::optional<std::int32_t> bos_;
  std::string fingerprint_;
  std::unique_ptr<const SentencePieceEncoder> encoder_;
};

}  // namespace muo::data
