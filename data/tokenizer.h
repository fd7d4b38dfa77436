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

// A token with a meaning of its own, such as the start of a document. Text is encoded to such
// tokens only by encode_special().
struct SpecialToken {
  std::string text;
  std::int32_t id = 0;
};

// Decodes consecutive ids to text.
class TextDecoder {
 public:
  TextDecoder() = default;
  virtual ~TextDecoder() = default;
  TextDecoder(const TextDecoder&) = delete;
  TextDecoder& operator=(const TextDecoder&) = delete;

  // Returns the text that is final after `id`. An id without a token adds nothing.
  virtual std::string add(std::int32_t id) = 0;
  // Returns the text held back so far. No further id may follow.
  virtual std::string finish() = 0;
};

// Converts text to ids and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Upper bound of the ids; an id below it need not have a token.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  // Appends to `ids` the ids of text[begin, end) as they are within all of `text`, which may
  // contain any bytes. If a token would extend beyond `end`, encoding continues to the next
  // position where the text is cut in any case. Returns the position where it stopped: the rest
  // can be encoded from there, or by another thread from a position that proves to be such a cut
  // (encode_parallel).
  virtual std::size_t encode(std::string_view text, std::size_t begin, std::size_t end,
                             std::vector<std::int32_t>& ids) const = 0;
  // Whether encode() stops near `end`; otherwise it always continues to the end of the text.
  [[nodiscard]] virtual bool cuts_text() const { return true; }
  // The bytes that a token adds to a text; for a special token, its text. Empty if the
  // id has no token.
  [[nodiscard]] virtual std::string_view bytes_of(std::int32_t id) const = 0;
  // A decoder for one text; by default, it returns bytes_of() for each id. The tokenizer
  // must outlive it.
  [[nodiscard]] virtual std::unique_ptr<TextDecoder> text_decoder() const;
  [[nodiscard]] virtual std::span<const SpecialToken> special_tokens() const = 0;
  // The special token that starts documents, if the tokenizer defines one; see find_bos().
  [[nodiscard]] virtual std::optional<std::int32_t> bos() const { return std::nullopt; }
  // 16 hexadecimal digits that are equal for tokenizers that encode every text to the same ids.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
};

// Opens a tokenizer. `name` is "byte"; or a file, i.e. Hugging Face's tokenizer.json of a
// byte-level BPE, a SentencePiece model, or ranks of tiktoken with the vocabulary of GPT-2, GPT-4
// or GPT-4o; or a folder that contains one of the first two. Throws InputError, which says which
// part of the file is malformed or not supported.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& name);

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text);
// Appends the same ids as encode(), using `threads` threads.
void encode_parallel(const Tokenizer& tokenizer, std::string_view text, int threads,
                     std::vector<std::int32_t>& ids);
// Returns the ids of each document, preceded by `bos`, using `threads` threads.
std::vector<std::vector<std::int32_t>> encode_documents(const Tokenizer& tokenizer,
                                                        std::span<const std::string_view> documents,
                                                        int threads, std::int32_t bos);
// Like encode(), but texts of special tokens become these tokens; the longest one that matches at
// each position is used.
std::vector<std::int32_t> encode_special(const Tokenizer& tokenizer, std::string_view text);
std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

// The special token that starts a document: Tokenizer::bos(), or the first one that exists of
// <|bos|>, <|begin_of_text|>, <s> and <|endoftext|>.
std::optional<std::int32_t> find_bos(const Tokenizer& tokenizer);
// The same, but throws InputError, which names the tokenizer as `name`, if there is none.
std::int32_t need_bos(const Tokenizer& tokenizer, const std::filesystem::path& name);

// The copy of a tokenizer that shards, runs and exported models keep: a SentencePiece model
// unchanged, as tokenizer.model; any other one as a tokenizer.json, in which "byte" has no merges.
struct TokenizerCopy {
  std::string name;  // one of kTokenizerNames
  std::string contents;
};
TokenizerCopy copy_tokenizer(const std::filesystem::path& name);
inline constexpr std::array<const char*, 2> kTokenizerNames = {"tokenizer.model", "tokenizer.json"};
// The tokenizer in a folder: its tokenizer.model if that is a SentencePiece model, or else its
// tokenizer.json; empty if there is none.
std::filesystem::path find_tokenizer_in(const std::filesystem::path& folder);

// Bytes of text per id, 0 for special tokens: the divisor for bits per byte.
std::vector<std::int32_t> bytes_of_tokens(const Tokenizer& tokenizer);

}  // namespace muo::data
