#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_bytes.h"
#include "data/file_form.h"
#include "data/input_files.h"

namespace muo::data {

// A document: either a whole text file, or one line of a JSON Lines file, which is an object with
// the text in one of its fields.
struct Document {
  std::string_view raw = {};  // the text, or the line of JSON
  bool is_json = false;
  std::size_t file = 0;   // index among the reader's files
  std::int64_t line = 0;  // counted from 1; only for JSON Lines
};

// Consecutive documents and the memory that holds them.
struct DocumentBatch {
  std::vector<Document> documents;
  std::vector<FileBytes> files;
  std::vector<std::unique_ptr<std::string>> buffers;
  std::int64_t input_bytes = 0;  // as they are stored on disk
};

// Views of texts. They point into `parsed` or into the batch.
struct DocumentTexts {
  std::vector<std::string_view> views;
  std::vector<std::string> parsed;
};

// Size limit in bytes of a line of JSON Lines, and of a document that is decompressed or read from
// standard input: these must be in memory, and a small compressed file may expand to any size. A
// plain text file is mapped and may be larger.
inline constexpr std::int64_t kMaxDocumentBytes = std::int64_t{1} << 30;

struct DocumentOptions {
  bool stdin_is_json = true;    // "-" is JSON Lines; else it is one text
  std::string field = "text";   // for JSON Lines: the field that holds the text
  std::string separator = {};   // between the documents of one text; empty: a single one
  bool skip_bad_lines = false;  // JSON lines without text are counted, not an error
  std::int64_t batch_bytes = 16 << 20;
  std::int64_t max_bytes = kMaxDocumentBytes;
};

// Reads documents in order with bounded memory: a batch of `batch_bytes` bytes, or a single larger
// document. The name of a file determines its format (form_of). If a file turns out not to be text,
// or if its first JSON line has no text, this is an InputError if the user named the file; a file
// found in a folder is skipped and counted. Not thread-safe. Throws InputError for unreadable files
// and for documents larger than `max_bytes`.
class DocumentReader {
 public:
  DocumentReader(std::vector<InputFile> files, const DocumentOptions& options);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  // Replaces `batch`. Returns false after the last batch.
  bool next(DocumentBatch& batch);
  // "FILE", or "FILE: line N".
  [[nodiscard]] std::string where(const Document& document) const;
  // The texts of documents that this reader has returned. JSON lines are parsed on `threads`
  // threads, and texts are split at separators. May run concurrently with next(). Throws InputError
  // for a line without text.
  [[nodiscard]] DocumentTexts texts(std::span<const Document> documents, int threads);

  // Totals so far.
  [[nodiscard]] const LeftOut& left_out() const { return left_out_; }
  [[nodiscard]] std::int64_t bad_lines() const { return bad_lines_; }

 private:
  struct Input;
  void add_lines(DocumentBatch& batch);
  void add_text(DocumentBatch& batch);
  void open_lines();
  void leave_out(const InputFile& file, const std::string& why, const std::string& advice);
  void check_size(const Document& document, std::size_t bytes) const;

  std::vector<InputFile> files_;  // files of foreign formats are left out
  const DocumentOptions options_;
  std::size_t batch_bytes_;
  std::size_t next_file_ = 0;
  LeftOut left_out_;
  std::int64_t bad_lines_ = 0;
  std::unique_ptr<Input> input_;  // the open JSON Lines file, if any
};

// Says why a file that is named like JSON Lines cannot be read by lines, and what to do:
// "is a JSON array, not JSON Lines; ...". Empty if it can be read. Throws InputError if the
// file is unreadable.
std::string json_lines_objection(const std::filesystem::path& file);

// Returns the string in `field` of a JSON line. Throws InputError, whose message starts with
// `where`, if there is none.
std::string text_of_line(std::string_view line, std::string_view field, const std::string& where);

}  // namespace muo::data
