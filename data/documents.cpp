#include "data/documents.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/shell_word.h"
#include "base/strict_json.h"
#include "base/threads.h"
#include "data/byte_source.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

// Returns nothing where text_of_line() throws.
std::optional<std::string> try_text_of_line(std::string_view line, std::string_view field) {
  try {
    return text_of_line(line, field, "");
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Appends the next `piece` bytes, or what is left. Returns false at the end of `source`.
bool read_more(ByteSource& source, std::size_t piece, std::string& text) {
  const std::size_t size = text.size();
  text.resize(size + piece);
  const std::size_t got = source.read(std::span(text).subspan(size));
  text.resize(size + got);
  return got == piece;
}

// Returns the first non-blank line, or only its beginning if it exceeds `max_bytes`.
std::string first_line(const fs::path& file, std::int64_t max_bytes) {
  const std::unique_ptr<ByteSource> source = open_bytes(file);
  constexpr std::size_t kPiece = 1 << 16;
  std::string text;
  for (;;) {
    const bool more = read_more(*source, kPiece, text);
    const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const std::size_t end = text.find('\n', begin);
    if (end != std::string::npos || !more || std::ssize(text) > max_bytes)
      return text.substr(begin, end - begin);
  }
}

std::string name_of(const InputFile& file) {
  return file.path == "-" ? "standard input" : file.path.native();
}

// Advice for a document that lacks the text field.
std::string field_advice(const nlohmann::json& object) {
  for (const char* const turns : {"messages", "conversations"})
    if (const auto found = object.find(turns); found != object.end() && found->is_array())
      return concat("'", turns, "' is a conversation, but training takes text: pipe the ",
                    "file through jq -c '{text: [.", turns, "[] | .content // .value] | ",
                    "join(\"\\n\")}' into muograph tokenize -");
  std::string names;
  for (const auto& [name, value] : object.items())
    if (value.is_string()) names += concat(names.empty() ? "" : ", ", "'", name, "'");
  return names.empty() ? "give the field that holds the text by --field"
                       : concat("text is in ", names, ": choose by --field");
}

void split_at(std::string_view separator, std::vector<std::string_view>& texts) {
  std::vector<std::string_view> pieces;
  for (const std::string_view text : texts)
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(separator, at), text.size());
      if (end > at) pieces.push_back(text.substr(at, end - at));
      at = end + separator.size();
    }
  texts = std::move(pieces);
}

}  // namespace

struct DocumentReader::Input {
  std::unique_ptr<ByteSource> bytes;
  std::size_t file = 0;
  std::int64_t line = 0;     // lines returned so far
  std::int64_t counted = 0;  // the part of bytes_taken() that earlier batches have counted
  std::string partial_line;  // the beginning of a line that is not yet complete
  bool ended = false;
};

DocumentReader::DocumentReader(std::vector<InputFile> files, const DocumentOptions& options)
    : files_(std::move(files)),
      options_(options),
      batch_bytes_(static_cast<std::size_t>(options.batch_bytes)) {
  MUO_CHECK(options.batch_bytes > 0, "batch_bytes is ", options.batch_bytes);
  std::erase_if(files_, [&](const InputFile& file) {
    const FileForm form = form_of(file.path);
    const bool is_foreign = form.kind == FileForm::Kind::kForeign;
    if (is_foreign) leave_out(file, std::string(form.name), form.advice);
    return is_foreign;
  });
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
      const fs::path& path = files_[next_file_].path;
      if (path == "-" ? options_.stdin_is_json : form_of(path).kind == FileForm::Kind::kJsonLines)
        open_lines();
      else
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

// Counts a file from a folder as left out; throws if the user named the file.
void DocumentReader::leave_out(const InputFile& file, const std::string& why,
                               const std::string& advice) {
  if (file.named) throw InputError(concat(name_of(file), " is ", why, ", not text; ", advice));
  left_out_.add(why);
}

void DocumentReader::add_text(DocumentBatch& batch) {
  const InputFile& file = files_[next_file_];
  std::string_view text;
  if (file.path != "-" && !form_of(file.path).compressed) {
    batch.files.emplace_back(file.path);
    text = batch.files.back().text();
    batch.input_bytes += std::ssize(text);
  } else {
    const std::unique_ptr<ByteSource> source = open_bytes(file.path);
    auto buffer = std::make_unique<std::string>();
    constexpr std::size_t kPiece = 1 << 20;
    for (bool more = true; more;) {
      more = read_more(*source, kPiece, *buffer);
      check_size({.file = next_file_}, buffer->size());
    }
    batch.input_bytes += source->bytes_taken();
    text = *buffer;
    batch.buffers.push_back(std::move(buffer));
  }
  if (const auto [why, advice] = find_not_text(text); !why.empty())
    return leave_out(file, why, advice);
  batch.documents.push_back({.raw = text, .file = next_file_});
}

void DocumentReader::open_lines() {
  const InputFile& file = files_[next_file_];
  if (!file.named) {
    const std::string line = first_line(file.path, options_.max_bytes);
    check_size({.is_json = true, .file = next_file_, .line = 1}, line.size());
    if (!try_text_of_line(line, options_.field))
      return left_out_.add(concat("JSON without lines with a field '", options_.field, "'"));
  }
  if (file.named && file.path != "-" && !options_.skip_bad_lines)
    if (const std::string why = json_lines_objection(file.path); !why.empty())
      throw InputError(concat(name_of(file), ' ', why));
  input_ = std::make_unique<Input>();
  input_->bytes = open_bytes(file.path);
  input_->file = next_file_;
}

// Adds the lines in the next `batch_bytes_` bytes, or a single longer line.
void DocumentReader::add_lines(DocumentBatch& batch) {
  Input& input = *input_;
  auto text = std::make_unique<std::string>(std::move(input.partial_line));
  std::size_t searched = 0;  // no newline before this offset
  std::size_t end = 0;
  while (!input.ended) {
    input.ended = !read_more(*input.bytes, batch_bytes_, *text);
    const std::size_t last = std::string_view(*text).substr(searched).rfind('\n');
    if (last != std::string_view::npos) {
      end = searched + last + 1;
      break;
    }
    searched = text->size();
    check_size({.is_json = true, .file = input.file, .line = input.line + 1}, searched);
  }
  if (input.ended) end = text->size();
  input.partial_line = text->substr(end);
  text->resize(end);
  const std::string_view lines = *text;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t newline = std::min(lines.find('\n', at), lines.size());
    ++input.line;
    const Document line{.raw = lines.substr(at, newline - at),
                        .is_json = true,
                        .file = input.file,
                        .line = input.line};
    check_size(line, line.raw.size());
    if (line.raw.find_first_not_of(" \t\r") != std::string_view::npos)
      batch.documents.push_back(line);
    at = newline + 1;
  }
  batch.input_bytes += input.bytes->bytes_taken() - input.counted;
  input.counted = input.bytes->bytes_taken();
  batch.buffers.push_back(std::move(text));
  if (input.ended) input_.reset();
}

void DocumentReader::check_size(const Document& document, std::size_t bytes) const {
  if (bytes > static_cast<std::size_t>(options_.max_bytes))
    throw InputError(concat(where(document), ": a document of more than ", options_.max_bytes,
                            " bytes, the limit for documents held in memory; split it"));
}

std::string DocumentReader::where(const Document& document) const {
  const std::string name = name_of(files_[document.file]);
  return document.is_json ? concat(name, ": line ", document.line) : name;
}

DocumentTexts DocumentReader::texts(std::span<const Document> documents, int threads) {
  DocumentTexts texts{.views = std::vector<std::string_view>(documents.size()),
                      .parsed = std::vector<std::string>(documents.size())};
  std::vector<std::uint8_t> bad(documents.size());
  parallel_for(threads, documents.size(), [&](std::size_t i) {
    const Document& document = documents[i];
    texts.views[i] = document.raw;
    if (!document.is_json) return;
    std::optional<std::string> text =
        options_.skip_bad_lines ? try_text_of_line(document.raw, options_.field)
                                : text_of_line(document.raw, options_.field, where(document));
    bad[i] = text ? 0 : 1;
    texts.parsed[i] = std::move(text).value_or("");
    texts.views[i] = texts.parsed[i];
  });
  if (const auto count = std::ranges::count(bad, 1); count > 0) {
    bad_lines_ += count;
    std::size_t i = 0;
    std::erase_if(texts.views, [&](std::string_view) { return bad[i++] == 1; });
  }
  if (!options_.separator.empty()) split_at(options_.separator, texts.views);
  return texts;
}

std::string json_lines_objection(const fs::path& file) {
  constexpr std::size_t kHeadBytes = 4096;
  std::string head;
  const bool is_all = !read_more(*open_bytes(file), kHeadBytes, head);
  const std::size_t begin = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::size_t newline = head.find('\n', begin);
  const std::string_view line = std::string_view(head).substr(begin, newline - begin);
  const std::size_t last = line.find_last_not_of(" \t\r");
  const bool is_array = line.starts_with('[');
  const bool is_cut = (is_all || newline != std::string::npos) && line.starts_with('{') &&
                      std::string_view("{[,:").find(line[last]) != std::string_view::npos;
  if (!is_array && !is_cut) return {};
  const std::string name = shell_word(file.native()), jq = is_array ? "jq -c '.[]'" : "jq -c .";
  const std::string command =
      !form_of(file).compressed
          ? concat(jq, ' ', name)
          : concat(file.extension() == ".zst" ? "zstdcat " : "zcat ", name, " | ", jq);
  return concat("is ", is_array ? "a JSON array" : "multi-line JSON",
                ", not JSON Lines (one document per line); pipe it: ", command,
                " | muograph tokenize -");
}

std::string text_of_line(std::string_view line, std::string_view field, const std::string& where) {
  const nlohmann::json object = parse_python_json(line, where);
  if (!object.is_object()) throw InputError(concat(where, ": not a JSON object"));
  const auto found = object.find(field);
  if (found == object.end())
    throw InputError(concat(where, ": no field '", field, "'; ", field_advice(object)));
  if (!found->is_string()) throw InputError(concat(where, ": field '", field, "' is not a string"));
  return found->get<std::string>();
}

}  // namespace muo::data
