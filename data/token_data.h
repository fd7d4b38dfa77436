#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace muo {

// An immutable sequence of tokens, memory-mapped or built from text. Thread-safe for readers.
class TokenData {
 public:
  virtual ~TokenData() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;  // tokens
  // out <- tokens [begin, begin + out.size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
};

// Byte tokenizer: token b < 256 is byte b; kBosToken starts every document.
inline constexpr std::int32_t kBosToken = 256;
inline constexpr std::int64_t kByteVocab = 257;

struct DataOptions {
  std::vector<std::filesystem::path> paths;      // text files, directories of text, or .bin shards
  std::vector<std::filesystem::path> val_paths;  // empty: hold out a part of `paths`
  std::int64_t max_bytes = 0;   // of text, 0: all; whole files, in path order, until it is reached
  double val_fraction = 0.1;    // of the held-out part, when val_paths is empty
  std::int64_t vocab_size = 0;  // for .bin shards: ids must be below; 0: byte tokenizer's
};

struct Corpus {
  std::unique_ptr<TokenData> train;
  std::unique_ptr<TokenData> val;
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> token_bytes;  // bytes of text per token (bits per byte); BOS: 0
  std::string description;                // one line for the user: files, bytes, tokens, split
  bool is_text = true;                    // byte tokenizer: samples can be printed
};

// Opens, checks and splits. Text: every file is a document, in sorted path order; with many files
// every k-th document is held out, with few the tail of the stream is. Binary files (with a NUL
// byte) in a directory are skipped and counted. Throws InputError with one clear line for
// everything that is missing, empty, too short, malformed, truncated, of a wrong version or out of
// vocabulary.
Corpus open_corpus(const DataOptions& options);

}  // namespace muo
