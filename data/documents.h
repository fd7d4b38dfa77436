#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_bytes.h"
#include "data/input_files.h"

namespace muo {

// A document: a whole file of text, or a line of a file of JSON Lines (named *.jsonl), an object
// one of whose fields is the text.
struct Document {
  std::string_view raw = {};  // text, or the line
  bool is_json = false;
  std::size_t file = 0;   // of those that the reader was given
  std::int64_t line = 0;  // from 1 on; of JSON Lines
};

// Some documents in their order, and the memory they lie in.
struct DocumentBatch {
  std::vector<Document> documents;
  std::vector<FileBytes> files;
  std::vector<std::unique_ptr<std::string>> buffers;
  std::int64_t input_bytes = 0;  // of the files as they lie on the disk
};

// Views of texts, and what was made to hold some of them; the others lie in the batch.
struct DocumentTexts {
  std::vector<std::string_view> views;
  std::vector<std::string> parsed;
};

// The most bytes of a line of JSON Lines, and of a document that is decompressed or comes from
// standard input: these have to lie in memory, and a small compressed file may hold any number. A
// plain file of text is mapped, and may be longer.
inline constexpr std::int64_t kMostDocumentBytes = std::int64_t{1} << 30;

// Reads documents in order, with bounded memory: a batch of `batch_bytes` or one document,
// whichever is more. Files named *.gz and *.zst are decompressed; "-" is standard input, lines of
// JSON if `stdin_is_json`, else one text. Not thread-safe. Throws InputError for what cannot be
// read, and for what exceeds `most_bytes`.
class DocumentReader {
 public:
  DocumentReader(std::vector<std::filesystem::path> files, bool stdin_is_json,
                 std::int64_t batch_bytes, std::int64_t most_bytes = kMostDocumentBytes);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  // Replaces `batch`; false after the last one.
  bool next(DocumentBatch& batch);
  // "FILE", or "FILE: line N".
  [[nodiscard]] std::string where(const Document& document) const;
  // The texts of documents that this reader gave out; of JSON Lines the strings in `field`, parsed
  // by so many threads; next() may run meanwhile. Throws InputError for a line that has none.
  [[nodiscard]] DocumentTexts texts(std::span<const Document> documents, std::string_view field,
                                    int threads) const;

 private:
  struct Input;
  void add_lines(DocumentBatch& batch);
  void add_text(DocumentBatch& batch);
  void check_size(const Document& document, std::size_t bytes) const;

  std::vector<std::filesystem::path> files_;
  bool stdin_is_json_;
  std::size_t batch_bytes_, most_bytes_;
  std::size_t next_file_ = 0;
  std::unique_ptr<Input> input_;  // of JSON Lines that are not at their end
};

// The string in `field` of a line of JSON. Throws InputError that starts with `where` if there is
// none.
std::string text_of_line(std::string_view line, std::string_view field, const std::string& where);

}  // namespace muo
