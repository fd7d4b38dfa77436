#include "data/documents.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strict_json.h"
#include "base/threads.h"
#include "data/byte_source.h"

namespace muo {
namespace {

namespace fs = std::filesystem;

// The ending that says what is in a file, beneath that of a compressed one.
fs::path inner_extension(const fs::path& path) {
  return is_compressed(path) ? path.stem().extension() : path.extension();
}

}  // namespace

struct DocumentReader::Input {
  std::unique_ptr<ByteSource> bytes;
  std::size_t file = 0;
  std::int64_t line = 0;     // lines that were given out
  std::int64_t counted = 0;  // of bytes_taken(), in batches
  std::string begun;         // the start of a line whose end was not read yet
  bool ended = false;
};

DocumentReader::DocumentReader(std::vector<fs::path> files, bool stdin_is_json,
                               std::int64_t batch_bytes)
    : files_(std::move(files)),
      stdin_is_json_(stdin_is_json),
      batch_bytes_(static_cast<std::size_t>(batch_bytes)) {
  MUO_CHECK(batch_bytes > 0, "batches of ", batch_bytes, " bytes");
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(DocumentBatch& batch) {
  batch = {};
  std::size_t bytes = 0;
  while (bytes < batch_bytes_) {
    const std::size_t before = batch.documents.size();
    if (input_) {
      add_lines(batch);
    } else if (next_file_ < files_.size()) {
      const fs::path& path = files_[next_file_];
      const bool is_json = path == "-" ? stdin_is_json_ : inner_extension(path) == ".jsonl";
      if (is_json) {
        input_ = std::make_unique<Input>();
        input_->bytes = open_bytes(path);
        input_->file = next_file_++;
        continue;
      }
      add_text(batch);
      ++next_file_;
    } else {
      break;
    }
    for (std::size_t i = before; i < batch.documents.size(); ++i)
      bytes += batch.documents[i].raw.size() + 1;
  }
  return !batch.documents.empty() || input_ || next_file_ < files_.size();
}

void DocumentReader::add_text(DocumentBatch& batch) {
  const fs::path& path = files_[next_file_];
  if (path != "-" && !is_compressed(path)) {
    batch.files.emplace_back(path);
    batch.documents.push_back({.raw = batch.files.back().text(), .file = next_file_});
    batch.input_bytes += static_cast<std::int64_t>(batch.documents.back().raw.size());
    return;
  }
  const std::unique_ptr<ByteSource> source = open_bytes(path);
  auto text = std::make_unique<std::string>();
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t size = 0;; size = text->size()) {
    text->resize(size + kPiece);
    const std::size_t got = source->read(std::span(*text).subspan(size));
    text->resize(size + got);
    if (got < kPiece) break;
  }
  batch.input_bytes += source->bytes_taken();
  batch.documents.push_back({.raw = *text, .file = next_file_});
  batch.buffers.push_back(std::move(text));
}

// The lines of the next `batch_bytes_`, or one longer line.
void DocumentReader::add_lines(DocumentBatch& batch) {
  Input& input = *input_;
  auto text = std::make_unique<std::string>(std::move(input.begun));
  std::size_t searched = 0;  // there is no end of a line before
  std::size_t end = 0;
  while (!input.ended) {
    const std::size_t size = text->size();
    text->resize(size + batch_bytes_);
    const std::size_t got = input.bytes->read(std::span(*text).subspan(size));
    text->resize(size + got);
    input.ended = got < batch_bytes_;
    const std::size_t last = std::string_view(*text).substr(searched).rfind('\n');
    if (last != std::string_view::npos) {
      end = searched + last + 1;
      break;
    }
    searched = text->size();
  }
  if (input.ended) end = text->size();
  input.begun = text->substr(end);
  text->resize(end);
  const std::string_view lines = *text;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t newline = std::min(lines.find('\n', at), lines.size());
    ++input.line;
    const std::string_view line = lines.substr(at, newline - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      batch.documents.push_back(
          {.raw = line, .is_json = true, .file = input.file, .line = input.line});
    at = newline + 1;
  }
  batch.input_bytes += input.bytes->bytes_taken() - input.counted;
  input.counted = input.bytes->bytes_taken();
  batch.buffers.push_back(std::move(text));
  if (input.ended) input_.reset();
}

std::string DocumentReader::where(const Document& document) const {
  const fs::path& path = files_[document.file];
  const std::string name = path == "-" ? "standard input" : path.native();
  return document.is_json ? concat(name, ": line ", document.line) : name;
}

DocumentTexts DocumentReader::texts(std::span<const Document> documents, std::string_view field,
                                    int threads) const {
  DocumentTexts texts{.views = std::vector<std::string_view>(documents.size()),
                      .parsed = std::vector<std::string>(documents.size())};
  parallel_for(threads, documents.size(), [&](std::size_t i) {
    const Document& document = documents[i];
    if (document.is_json) texts.parsed[i] = text_of_line(document.raw, field, where(document));
    texts.views[i] = document.is_json ? texts.parsed[i] : document.raw;
  });
  return texts;
}

std::string text_of_line(std::string_view line, std::string_view field, const std::string& where) {
  const nlohmann::json object = parse_python_json(line, where);
  if (!object.is_object()) throw InputError(concat(where, ": not a JSON object"));
  const auto found = object.find(field);
  if (found == object.end())
    throw InputError(
        concat(where, ": no field '", field, "'; --field names the one that holds the text"));
  if (!found->is_string()) throw InputError(concat(where, ": field '", field, "' is not a string"));
  return found->get<std::string>();
}

}  // namespace muo
