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

// A SentencePiece model. Text is normalized before it is encoded, so decoding need not give it
// back. Control pieces are special tokens; user-defined ones are found in every text.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `file`: all of a model's file; `source` names it in errors. Throws InputError, also where
  // libsentencepiece is not installed.
  SentencePieceTokenizer(std::string_view file, std::string_view source);

  [[nodiscard]] std::int64_t vocab_size() const override;
  // Throws InputError for texts of more than 128 MiB: the library counts bytes, of which
  // normalization can make 13 of one, by int.
  std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                     std::vector<std::int32_t>& ids) const override;
  // No: rules of normalization and pieces may reach over any place.
  [[nodiscard]] bool cuts_text() const override { return false; }
  // Of a first token with the space that the dummy prefix is.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const override;
  [[nodiscard]] std::unique_ptr<TextDecoder> text_decoder() const override;
  [[nodiscard]] std::span<const SpecialToken> special_tokens() const override { return special_; }
  [[nodiscard]] std::optional<std::int32_t> bos() const override { return bos_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

 private:
  class Decoder;

  std::string source_;
  SentencePieceModel model_;
  std::vector<std::string> bytes_;  // by id
  std::vector<SpecialToken> special_;
  std::optional<std::int32_t> bos_;
  std::string fingerprint_;
  std::unique_ptr<const SentencePieceEncoder> encoder_;
};

}  // namespace muo::data
