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
  [[nodiscard]] virtual std::int64_t size() const = 0;  // in tokens
  // Copies tokens [begin, begin + out.size()) to `out`.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
};

// The byte tokenizer: token b < 256 is byte b; kBosToken starts every document.
inline constexpr std::int32_t kBosToken = 256;
inline constexpr std::int64_t kByteVocab = 257;

// How rows are formed: kContiguous takes blocks of tokens regardless of document boundaries,
// kBestFit packs whole documents (data/row_packer.h).
enum class Packing : std::uint8_t { kContiguous, kBestFit };
constexpr auto names_of(Packing) { return name_list("contiguous", "best-fit"); }

class DocumentIndex;

struct DataOptions {
  // Text files, directories of text, .bin shards, or patterns (*, ?, [) that the
  // shell did not expand.
  std::vector<std::filesystem::path> paths = {};
  std::vector<std::filesystem::path> val_paths = {};  // empty: a part of `paths` is held out
  bool held_out_only = false;  // all of `paths` is held out; val_paths must be empty
  // Limit of training text in bytes; 0: none. Whole files are taken, in order, until it is reached.
  std::int64_t max_bytes = 0;
  double val_fraction = 0.1;  // share that is held out if val_paths is empty
  // For text, as open_tokenizer() takes it. If it is a file, it also defines the ids of .bin
  // shards.
  std::string tokenizer = "byte";
  // For .bin shards: upper bound of the ids; 0: that of the tokenizer.
  std::int64_t vocab_size = 0;
  Packing packing = Packing::kContiguous;
  // For .bin shards: the id that begins documents; -1: that of the tokenizer.
  std::int64_t bos_token = -1;
};

struct Corpus {
  std::unique_ptr<TokenData> train;
  std::unique_ptr<TokenData> val;
  std::int64_t vocab_size = 0;
  std::vector<std::int32_t> token_bytes;  // bytes of text per token, BOS: 0. Empty for shards
                                          // without a tokenizer: bits per byte are then unknown
  std::string description;                // one line for the user: files, bytes, tokens, split
  // The token_fingerprint() of train and val.
  std::uint32_t train_fingerprint = 0, val_fingerprint = 0;
  // Null for shards of an unknown tokenizer; samples cannot be printed then.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::filesystem::path tokenizer_name = {};  // as open_tokenizer() takes it
  std::optional<std::int32_t> bos = {};       // begins every document; empty: unknown
  // With best-fit packing, the documents of train and val, else null.
  std::shared_ptr<const DocumentIndex> train_documents = {}, val_documents = {};
};

// Opens, checks and splits the data.
// - Order: paths as given; a directory stands for the files below it, sorted by the bytes of their
//   paths, without hidden ones. Links are followed; no file or directory is taken twice.
// - Text: every file is a document. The last val_fraction of each large document is held out, and
//   every k-th block of the others, k = round(1 / val_fraction). Held-out documents that equal a
//   training document are dropped. In a directory, binary files (with a zero byte) and empty files
//   are skipped.
// - Shards: those with the word "val", "valid" or "validation" in their names are held out, else
//   the last one, or the tail of a single one. In a directory, they are recognised by their
//   extension and, if there is text as well, by their magic number.
// - A file of val_paths that is also among paths is not trained on.
// - With best-fit packing, all data is scanned for documents.
// The description counts everything that was left out. Throws InputError, in one line, for data
// that is missing, unreadable, empty, too short, malformed, truncated, of a wrong version or out of
// vocabulary, and for shards mixed with text.
Corpus open_corpus(const DataOptions& options);

// A corpus without data, for a run that reads none. Its vocabulary is `vocab_size`, or that
// of the tokenizer.
Corpus corpus_without_tokens(const DataOptions& options);

}  // namespace muo::data
