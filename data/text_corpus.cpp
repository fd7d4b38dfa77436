#include "data/text_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_bytes.h"
#include "base/shell_word.h"
#include "base/system_limits.h"
#include "base/threads.h"
#include "data/concat_data.h"
#include "data/documents.h"
#include "data/file_form.h"
#include "data/tokenizer.h"

namespace muo::data {
namespace {

// The number of blocks of whole documents that are held out. Of a document larger than a block, the
// end is held out instead.
constexpr std::int64_t kHeldOutBlocks = 20;

// A document, or its part on one side of the split: either as bytes, which are its tokens except
// for BOS, or as tokens.
struct Slice {
  FileBytes file;
  std::string_view text;  // in `file`; empty for a part that is tokenized
  bool starts = true;     // if it consists of bytes: begins with BOS
  std::shared_ptr<const std::vector<std::int32_t>> ids = {};
  std::span<const std::int32_t> tokens = {};  // in `ids`

  [[nodiscard]] std::int64_t size() const {
    if (ids) return static_cast<std::int64_t>(tokens.size());
    return static_cast<std::int64_t>(text.size()) + (starts ? 1 : 0);
  }
  void read(std::int64_t begin, std::span<std::int32_t> out) const {
    if (ids) {
      const auto from = tokens.subspan(static_cast<std::size_t>(begin), out.size());
      std::copy(from.begin(), from.end(), out.begin());
      return;
    }
    if (starts && begin == 0 && !out.empty()) {
      out.front() = kBosToken;
      out = out.subspan(1);
    } else if (starts) {
      --begin;
    }
    const auto from = text.substr(static_cast<std::size_t>(begin), out.size());
    std::transform(from.begin(), from.end(), out.begin(),
                   [](char c) { return std::int32_t{static_cast<unsigned char>(c)}; });
  }
  // Removes the last `count` < size() tokens and returns them.
  Slice split_tail(std::int64_t count) {
    Slice tail = *this;
    const auto size = static_cast<std::size_t>(count);
    if (ids) {
      tail.tokens = tokens.last(size);
      tokens = tokens.first(tokens.size() - size);
      tail.text = text = {};
    } else {
      tail.starts = false;
      tail.text = text.substr(text.size() - size);
      text.remove_suffix(size);
    }
    return tail;
  }
};
using Slices = std::vector<Slice>;

std::string readable(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < 10'000      ? fmt::format("{} bytes", bytes)
         : bytes < 1'000'000 ? fmt::format("{:.1f} kB", value * 1e-3)
                             : fmt::format("{:.1f} MB", value * 1e-6);
}

std::int64_t text_bytes(const Slices& slices) {
  std::int64_t bytes = 0;
  for (const Slice& slice : slices)
    bytes += static_cast<std::int64_t>(slice.text.size());
  return bytes;
}

// Returns the name of a format other than plain text, which at most `muograph tokenize` can
// read; else empty.
std::string unsupported_form(const FileForm& form) {
  if (form.kind == FileForm::Kind::kForeign) return std::string(form.name);
  if (form.kind == FileForm::Kind::kJsonLines) return "JSON Lines";
  return form.compressed ? "compressed" : "";
}

[[noreturn]] void refuse(const std::filesystem::path& file, const FileForm& form,
                         const std::string& other) {
  if (form.kind == FileForm::Kind::kForeign)
    throw InputError(concat(file.native(), " is ", other, ", not text; ", form.advice));
  if (form.kind == FileForm::Kind::kJsonLines)
    if (const std::string why = json_lines_objection(file); !why.empty())
      throw InputError(concat(file.native(), ' ', why, " --tokenizer byte --out shards"));
  throw InputError(concat(file.native(), " is ", other,
                          ", not text; make token shards of it: muograph tokenize ",
                          shell_word(file.native()), " --tokenizer byte --out shards"));
}

Slices read_documents(std::span<const InputFile> files, std::int64_t max_bytes, LeftOut& left_out) {
  Slices documents;
  std::int64_t total = 0;
  for (const InputFile& file : files) {
    if (max_bytes > 0 && total >= max_bytes) break;
    const FileForm form = form_of(file.path);
    if (const std::string other = unsupported_form(form); !other.empty()) {
      if (file.named) refuse(file.path, form, other);
      left_out.add(other);
      continue;
    }
    const FileBytes contents(file.path);
    const std::string_view text = contents.text();
    const auto [why, advice] = find_not_text(text);
    if (file.named && text.empty())
      throw InputError(concat(file.path.native(), ": the file is empty; give one with text"));
    if (file.named && !why.empty())
      throw InputError(concat(file.path.native(), " is ", why, ", not text; ", advice));
    if (text.empty() || !why.empty()) {
      left_out.add(text.empty() ? "empty" : why);
      continue;
    }
    documents.push_back({.file = contents, .text = text});
    total += static_cast<std::int64_t>(text.size());
  }
  return documents;
}

// Moves the held-out part of `train` into the result, in order; `method` describes the split.
Slices hold_out(Slices& train, double fraction, std::string& method) {
  std::int64_t all = 0;
  for (const Slice& document : train)
    all += document.size();
  const std::int64_t every = std::max(2L, std::lround(1 / fraction));
  const std::int64_t block = all / (kHeldOutBlocks * every);
  Slices val, kept;
  std::int64_t blocks = 0, in_block = 0;
  std::size_t ends = 0;
  for (Slice& document : train) {
    const std::int64_t size = document.size();
    if (size > block) {
      const auto count = std::llround(static_cast<double>(size) * fraction);
      if (0 < count && count < size) {
        val.push_back(document.split_tail(count));
        ++ends;
      }
      kept.push_back(document);
      continue;
    }
    (blocks % every == every / 2 ? val : kept).push_back(document);
    in_block += size;
    if (in_block >= block) {
      ++blocks;
      in_block = 0;
    }
  }
  const std::size_t whole = val.size() - ends;
  method = train.size() == 1 ? "the end"
           : whole == 0      ? fmt::format("the ends of {} files", ends)
           : ends == 0       ? fmt::format("{} whole files", whole)
                             : fmt::format("{} whole files, the ends of {}", whole, ends);
  train = std::move(kept);
  return val;
}

// Tokens are held in memory here, and more than once during tokenization. Measured with a
// vocabulary of 4,096 on 113 MB of source code: 3.1 bytes of memory per byte of text for a single
// file, 1.3 for 200 files.
void require_memory_for_tokens(std::int64_t text_bytes, const DataOptions& options) {
  constexpr std::int64_t kBytesOfMemory = 3;
  const AvailableMemory available = available_memory();
  if (text_bytes <= available.bytes / kBytesOfMemory) return;
  std::string files;
  for (const auto& path : options.paths)
    files += concat(shell_word(path.native()), " ");
  throw InputError(concat("--data: tokenizing ", readable(text_bytes),
                          " of text in memory needs about ", readable(kBytesOfMemory * text_bytes),
                          ", but ", readable(available.bytes), " are available", available.limit,
                          ": write token shards to disk instead: muograph tokenize ", files,
                          "--tokenizer ", shell_word(options.tokenizer), " --out shards"));
}

void tokenize(Slices& documents, const Tokenizer& tokenizer, std::int32_t bos) {
  std::vector<std::string_view> texts;
  for (const Slice& document : documents)
    texts.push_back(document.text);
  auto encoded = encode_documents(tokenizer, texts, usable_cores(), bos);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    documents[i].ids = std::make_shared<const std::vector<std::int32_t>>(std::move(encoded[i]));
    documents[i].tokens = *documents[i].ids;
  }
}

std::size_t drop_duplicates(Slices& val, const Slices& train) {
  std::unordered_set<std::string_view> known;
  for (const Slice& slice : train)
    if (!slice.text.empty()) known.insert(slice.text);
  return std::erase_if(val, [&](const Slice& slice) { return known.contains(slice.text); });
}

}  // namespace

Corpus open_text(const DataOptions& options, std::span<const InputFile> files,
                 std::span<const InputFile> val_files) {
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(options.tokenizer);
  const std::int32_t bos = need_bos(*tokenizer, options.tokenizer);
  if (options.bos_token >= 0)
    throw InputError(concat("--bos-token ", options.bos_token,
                            ": only for .bin token shards; texts ",
                            "begin with the tokenizer's token ", bos, ": leave it out"));
  LeftOut left_out;
  Slices train = read_documents(files, options.max_bytes, left_out);
  Slices val = read_documents(val_files, 0, left_out);
  if (train.empty() || (val.empty() && !val_files.empty()))
    throw InputError(concat((train.empty() ? options.paths : options.val_paths).front().native(),
                            ": no text here (left out: ", left_out.text(),
                            "); give a directory that holds text, or make token shards of "
                            "other formats with muograph tokenize"));
  const std::size_t file_count = train.size() + val.size();
  const std::int64_t file_bytes = text_bytes(train) + text_bytes(val);
  const bool is_bytes = options.tokenizer == "byte";
  if (!is_bytes) {
    require_memory_for_tokens(file_bytes, options);
    tokenize(train, *tokenizer, bos);
    tokenize(val, *tokenizer, bos);
  }
  std::string method = "--val-data";
  if (val_files.empty() && !options.held_out_only)
    val = hold_out(train, options.val_fraction, method);
  const std::size_t dropped = drop_duplicates(val, train);
  if (dropped > 0 && val.empty())
    throw InputError(concat(
        (val_files.empty() ? options.paths : options.val_paths).front().native(), ": all ", dropped,
        " held-out documents equal documents that are "
        "trained on; give other text as --val-data"));

  Corpus corpus{.train = std::make_unique<ConcatData<Slice>>(std::move(train)),
                .val = std::make_unique<ConcatData<Slice>>(std::move(val)),
                .vocab_size = tokenizer->vocab_size(),
                .token_bytes = bytes_of_tokens(*tokenizer),
                .description = {},
                .tokenizer = tokenizer,
                .tokenizer_name = options.tokenizer,
                .bos = bos};
  if (dropped > 0)
    left_out.add("held-out duplicates of training text", static_cast<std::int64_t>(dropped));
  const std::string others = left_out.text();
  const std::string note = others.empty() ? "" : "; left out: " + others;
  const std::string by =
      is_bytes
          ? ""
          : fmt::format(" by {}", std::filesystem::path(options.tokenizer).filename().string());
  corpus.description =
      fmt::format("text: {} file{}, {}{}: {} tokens to train on, {} held out ({}){}", file_count,
                  file_count == 1 ? "" : "s", readable(file_bytes), by, corpus.train->size(),
                  corpus.val->size(), method, note);
  return corpus;
}

}  // namespace muo::data
