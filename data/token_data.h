#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.h"
#include "data/tokenizer.h"

namespace muo::data {

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

// How rows are made of documents: kContiguous takes blocks of the tokens wherever these begin,
// kBestFit whole documents (data/row_packer.h).
enum class Packing : std::uint8_t { kContiguous, kBestFit };
constexpr auto names_of(Packing) { return name_list("contiguous", "best-fit"); }

class DocumentIndex;

struct DataOptions {
  // Text files, directories of text, or .bin shards; patterns (*, ?, [) that the shell left alone.
  std::vector<std::filesystem::path> paths = {};
  std::vector<std::filesystem::path> val_paths = {};  // empty: hold out some of `paths`
  bool held_out_only = false;  // all of `paths` is held out, and nothing to train on; no val_paths
  // Of training text, 0: all. Whole files are taken, in order, until it is reached.
  std::int64_t max_bytes = 0;
  double val_fraction = 0.1;  // held out, when val_paths is empty
  // Of text, as open_tokenizer() takes it; a file also tells what the ids of .bin shards stand for.
  std::string tokenizer = "byte";
  // For .bin shards: ids must be below; 0: those of the tokenizer.
  std::int64_t vocab_size = 0;
  Packing packing = Packing::kContiguous;
  // Of .bin shards: the id that begins documents; -1: the tokenizer's.
  std::int64_t bos_token = -1;
};

struct Corpus {
  std::unique_ptr<TokenData> train;
  std::unique_ptr<TokenData> val;
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> token_bytes;  // bytes of text per token, BOS: 0. Empty for shards:
                                          // unknown, so there are no bits per byte
  std::string description;                // one line for the user: files, bytes, tokens, split
  // token_fingerprint() of both.
  std::uint32_t train_fingerprint = 0, val_fingerprint = 0;
  // Null for shards of which nothing tells: no samples can be printed.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::filesystem::path tokenizer_name = {};  // as open_tokenizer() takes it
  std::optional<std::int32_t> bos = {};       // begins every document; none: unknown
  // With best-fit packing the documents of both, else null.
  std::shared_ptr<const DocumentIndex> train_documents = {}, val_documents = {};
};

// Opens, checks and splits.
// - Order: paths as given; a directory stands for the files below it, sorted by the bytes of their
//   paths, without hidden ones. Links are followed; no file or directory is taken twice.
// - Text: every file is a document. Of large ones the last val_fraction are held out, of the
//   others every k-th block of some, k = round(1 / val_fraction). Held-out documents equal to one
//   that is trained on are dropped. Binary (with a zero byte) and empty files in a directory are
//   skipped.
// - Shards: held out are those with the word "val", "valid" or "validation" in their names, else
//   the last, or the tail of a single one. In a directory they are recognised by their ending, and,
//   beside text, by their magic.
// - A file of val_paths that is also among paths is not trained on.
// - With best-fit packing all of it is looked through for documents.
// All that is left out is counted in the description. Throws InputError with one clear line for
// everything that is missing, empty, too short, malformed, truncated, of a wrong version or out of
// vocabulary, for shards and text together, and for what cannot be read.
Corpus open_corpus(const DataOptions& options);

// What a run that reads no data knows of it: the vocabulary of `vocab_size`, or the tokenizer's.
Corpus vocabulary_only(const DataOptions& options);

}  // namespace muo::data
