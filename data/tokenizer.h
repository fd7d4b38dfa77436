#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muo::data {

// A token with a meaning of its own, such as the start of a document. No text becomes one unless
// encode_special() is asked to.
struct SpecialToken {
  std::string text;
  std::int32_t id = 0;
};

// From ids, one after the other, to text.
class TextDecoder {
 public:
  TextDecoder() = default;
  virtual ~TextDecoder() = default;
  TextDecoder(const TextDecoder&) = delete;
  TextDecoder& operator=(const TextDecoder&) = delete;

  // The text that is certain once `id` has come; nothing of an id without a token.
  virtual std::string add(std::int32_t id) = 0;
  // What was held back, as nothing follows.
  virtual std::string finish() = 0;
};

// From text to ids and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids are below; not every one has to have a token.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // Appends to `ids` the ids of text[begin, end), any bytes, as they are within all of `text`:
  // where a token would reach over `end`, what follows is encoded up to the next place where text
  // is cut in any case. Returns where that is, so what is left can be encoded from there, or, by
  // another thread, from a place that proves to be one (encode_parallel).
  virtual std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                             std::vector<std::int32_t>& ids) const = 0;
  // Whether encode() heeds `end`; else it goes on to the end of the text.
  [[nodiscard]] virtual bool cuts_text() const { return true; }
  // The bytes that a token adds to a text; of a special one its text. Empty for an id without a
  // token.
  [[nodiscard]] virtual std::string_view bytes_of(std::int32_t id) const = 0;
  // Decodes one text, by default bytes_of() each id. The tokenizer has to outlive it.
  [[nodiscard]] virtual std::unique_ptr<TextDecoder> text_decoder() const;
  [[nodiscard]] virtual std::span<const SpecialToken> special_tokens() const = 0;
  // The special token that starts documents, where the tokenizer says which: see find_bos().
  [[nodiscard]] virtual std::optional<std::int32_t> bos() const { return std::nullopt; }
  // Equal for two tokenizers that give the same ids to every text: 16 hexadecimal digits.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
};

// "byte"; or a file: Hugging Face's tokenizer.json of a byte-level BPE, a SentencePiece model, or
// ranks of tiktoken with the vocabulary of GPT-2, GPT-4 or GPT-4o; or a folder that holds one of
// the first two. Throws InputError: what of the file is not supported, or where it is malformed.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& name);

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text);
// Appends the same ids, by several threads.
void encode_parallel(const Tokenizer& tokenizer, std::string_view text, int threads,
                     std::vector<std::int32_t>& ids);
// The ids of each document, behind `bos`; by several threads.
std::vector<std::vector<std::int32_t>> encode_documents(const Tokenizer& tokenizer,
                                                        std::span<const std::string_view> documents,
                                                        int threads, std::int32_t bos);
// As encode(), but the texts of special tokens become these (of several at one place the longest).
std::vector<std::int32_t> encode_special(const Tokenizer& tokenizer, std::string_view text);
std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

// The special token that starts a document: Tokenizer::bos(), or the first of <|bos|>,
// <|begin_of_text|>, <s> and <|endoftext|> that there is.
std::optional<std::int32_t> find_bos(const Tokenizer& tokenizer);
// The same; if there is none, throws InputError that names the tokenizer `name`.
std::int32_t need_bos(const Tokenizer& tokenizer, const std::filesystem::path& name);

// What shards, runs and exported models keep of what open_tokenizer() takes: a SentencePiece model
// as it is, as tokenizer.model, others as a tokenizer.json; "byte" as one without merges.
struct TokenizerCopy {
  std::string name;  // of kTokenizerNames
  std::string contents;
};
TokenizerCopy copy_tokenizer(const std::filesystem::path& name);
inline constexpr std::array<const char*, 2> kTokenizerNames = {"tokenizer.model", "tokenizer.json"};
// The tokenizer that a folder holds: its tokenizer.model if that is a SentencePiece model, or its
// tokenizer.json; empty: none.
std::filesystem::path find_tokenizer_in(const std::filesystem::path& folder);

// The bytes of text that each id stands for, 0 for special tokens: what bits per byte divide by.
std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer);

}  // namespace muo::data
