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

// A document: a whole file of text, or a line of a file of JSON Lines, an object one of whose
// fields is the text.
struct Document {
  std::string_view raw = {};  // text, or the line
  bool is_json = false;
  std::size_t file = 0;   // of those that the reader reads
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

struct DocumentOptions {
  bool stdin_is_json = true;    // "-" is JSON Lines, else one text
  std::string field = "text";   // of JSON Lines: holds the text
  std::string separator = {};   // stands between documents within a text; empty: there are none
  bool skip_bad_lines = false;  // lines of JSON that hold no text are counted, not an error
  std::int64_t batch_bytes = 16 << 20;
  std::int64_t most_bytes = kMostDocumentBytes;
};

// Reads documents in order, with bounded memory: a batch of `batch_bytes` or one document,
// whichever is more. What a file holds is known by its name (form_of), and has to be so: a file
// that was named and is not text, or whose first line of JSON holds no text, is an InputError, one
// of a folder is left out and counted. Not thread-safe. Throws InputError for what cannot be read,
// and for what exceeds `most_bytes`.
class DocumentReader {
 public:
  DocumentReader(std::vector<InputFile> files, const DocumentOptions& options);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  // Replaces `batch`; false after the last one.
  bool next(DocumentBatch& batch);
  // "FILE", or "FILE: line N".
  [[nodiscard]] std::string where(const Document& document) const;
  // The texts of documents that this reader gave out, of JSON Lines parsed by so many threads, and
  // cut at separators; next() may run meanwhile. Throws InputError for a line that has none.
  [[nodiscard]] DocumentTexts texts(std::span<const Document> documents, int threads);

  // Up to now.
  [[nodiscard]] const LeftOut& left_out() const { return left_out_; }
  [[nodiscard]] std::int64_t bad_lines() const { return bad_lines_; }

 private:
  struct Input;
  void add_lines(DocumentBatch& batch);
  void add_text(DocumentBatch& batch);
  void open_lines();
  void leave_out(const InputFile& file, const std::string& why, const std::string& advice);
  void check_size(const Document& document, std::size_t bytes) const;

  std::vector<InputFile> files_;  // none that is foreign
  const DocumentOptions options_;
  std::size_t batch_bytes_;
  std::size_t next_file_ = 0;
  LeftOut left_out_;
  std::int64_t bad_lines_ = 0;
  std::unique_ptr<Input> input_;  // of JSON Lines that are not at their end
};

// Why a file whose name is that of JSON Lines is not read by lines, and what to do: "is an array of
// JSON, not JSON Lines; ..."; empty: it may be. Throws InputError for what cannot be read.
std::string json_lines_objection(const std::filesystem::path& file);

// The string in `field` of a line of JSON. Throws InputError that starts with `where` if there is
// none.
std::string text_of_line(std::string_view line, std::string_view field, const std::string& where);

}  // namespace muo::data
