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
#include "data/concat_data.h"

namespace muo {
namespace {

constexpr std::size_t kManyDocuments = 20;  // from here on whole documents are held out

// A document, or what of one lies on one side of the split.
struct TextSlice {
  FileBytes file;
  std::string_view text;  // in `file`
  bool starts = true;     // with BOS

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(text.size()) + (starts ? 1 : 0);
  }
  void read(std::int64_t begin, std::span<std::int32_t> out) const {
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
};
using Slices = std::vector<TextSlice>;

struct Skipped {
  std::int64_t binary = 0;
  std::int64_t empty = 0;
};

std::string readable(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < 10'000      ? fmt::format("{} bytes", bytes)
         : bytes < 1'000'000 ? fmt::format("{:.1f} kB", value * 1e-3)
                             : fmt::format("{:.1f} MB", value * 1e-6);
}

std::int64_t text_bytes(const Slices& slices) {
  std::int64_t bytes = 0;
  for (const TextSlice& slice : slices)
    bytes += static_cast<std::int64_t>(slice.text.size());
  return bytes;
}

Slices read_documents(std::span<const InputFile> files, std::int64_t max_bytes, Skipped& skipped) {
  Slices documents;
  std::int64_t total = 0;
  for (const InputFile& file : files) {
    if (max_bytes > 0 && total >= max_bytes) break;
    const FileBytes contents(file.path);
    const std::string_view text = contents.text();
    const std::size_t nul = text.find('\0');
    if (file.named && text.empty())
      throw InputError(concat(file.path.native(), ": the file is empty; give one with text"));
    if (file.named && nul != std::string_view::npos)
      throw InputError(concat(file.path.native(), ": not text (a zero byte at offset ", nul,
                              "); give text, as UTF-8 if it is UTF-16, or .bin token shards"));
    if (text.empty() || nul != std::string_view::npos) {
      ++(text.empty() ? skipped.empty : skipped.binary);
      continue;
    }
    documents.push_back({.file = contents, .text = text});
    total += static_cast<std::int64_t>(text.size());
  }
  return documents;
}

// Moves what of `train` is held out into the result; says how in `method`.
Slices hold_out(Slices& train, double fraction, std::string& method) {
  Slices val;
  if (train.size() >= kManyDocuments) {
    const auto every = static_cast<std::size_t>(std::max(2L, std::lround(1 / fraction)));
    Slices kept;
    for (std::size_t i = 0; i < train.size(); ++i)
      (i % every == every - 1 ? val : kept).push_back(train[i]);
    train = std::move(kept);
    method = fmt::format("one file in {}", every);
    return val;
  }
  std::int64_t tokens = 0;
  for (const TextSlice& slice : train)
    tokens += slice.size();
  auto left = std::llround(static_cast<double>(tokens) * fraction);
  for (; left > 0; left -= val.front().size()) {
    TextSlice& last = train.back();
    if (left >= last.size()) {
      val.insert(val.begin(), last);
      train.pop_back();
    } else {
      const auto cut = last.text.size() - static_cast<std::size_t>(left);
      val.insert(val.begin(), {.file = last.file, .text = last.text.substr(cut), .starts = false});
      last.text = last.text.substr(0, cut);
    }
  }
  method = "the end";
  return val;
}

std::size_t drop_known(Slices& val, const Slices& train) {
  std::unordered_set<std::string_view> known;
  for (const TextSlice& slice : train)
    known.insert(slice.text);
  return std::erase_if(val, [&](const TextSlice& slice) { return known.contains(slice.text); });
}

std::string left_out(const Skipped& skipped, std::size_t dropped) {
  std::string out;
  const auto add = [&](auto count, std::string_view what) {
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "; left out: " : ", ", count, what);
  };
  add(dropped, "held-out duplicates of training text");
  add(skipped.binary, "binary");
  add(skipped.empty, "empty");
  return out;
}

}  // namespace

Corpus open_text(const DataOptions& options, std::span<const InputFile> files,
                 std::span<const InputFile> val_files) {
  Skipped skipped;
  Slices train = read_documents(files, options.max_bytes, skipped);
  Slices val = read_documents(val_files, 0, skipped);
  if (train.empty() || (val.empty() && !val_files.empty()))
    throw InputError(concat((train.empty() ? options.paths : options.val_paths).front().native(),
                            ": no text here (", skipped.binary, " binary and ", skipped.empty,
                            " empty files); give a directory that holds text"));
  const std::size_t file_count = train.size() + val.size();
  const std::int64_t file_bytes = text_bytes(train) + text_bytes(val);
  std::string method = "--val-data";
  if (val_files.empty() && !options.held_out_only)
    val = hold_out(train, options.val_fraction, method);
  const std::size_t dropped = drop_known(val, train);
  if (dropped > 0 && val.empty())
    throw InputError(concat(
        (val_files.empty() ? options.paths : options.val_paths).front().native(), ": all ", dropped,
        " held-out documents equal documents that are "
        "trained on; give other text as --val-data"));

  Corpus corpus{.train = std::make_unique<ConcatData<TextSlice>>(std::move(train)),
                .val = std::make_unique<ConcatData<TextSlice>>(std::move(val)),
                .vocab_size = kByteVocab,
                .token_bytes = std::vector<std::int32_t>(kByteVocab, 1),
                .description = {},
                .is_text = true};
  corpus.description =
      fmt::format("text: {} file{}, {}: {} tokens to train on, {} held out ({}){}", file_count,
                  file_count == 1 ? "" : "s", readable(file_bytes), corpus.train->size(),
                  corpus.val->size(), method, left_out(skipped, dropped));
  corpus.token_bytes.at(kBosToken) = 0;
  return corpus;
}

}  // namespace muo
