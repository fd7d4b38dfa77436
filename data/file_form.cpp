#include "data/file_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"
#include "base/installed_file.h"
#include "base/shell_word.h"
#include "base/utf8.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

// The extension in lower case, such as ".gz".
std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().native();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

struct Foreign {
  std::string_view ending, name, advice;
};
constexpr std::string_view kDecompress = "decompress it, or compress it with gzip or zstd";
constexpr std::string_view kUnpack = "unpack it, and give the files";
constexpr std::string_view kParquet = "pipe it";
constexpr std::array<Foreign, 12> kForeign = {{
    {".parquet", "Parquet", kParquet},
    {".xz", "compressed by xz", kDecompress},
    {".bz2", "compressed by bzip2", kDecompress},
    {".lz4", "compressed by lz4", kDecompress},
    {".lzma", "compressed by lzma", kDecompress},
    {".br", "compressed by Brotli", kDecompress},
    {".z", "compressed by compress", kDecompress},
    {".zip", "a zip archive", kUnpack},
    {".7z", "a 7z archive", kUnpack},
    {".rar", "a RAR archive", kUnpack},
    {".tar", "a tar archive", kUnpack},
    {".tgz", "a tar archive", kUnpack},
}};

// Whether characters beyond ASCII seem to be single bytes. A few bytes that are not UTF-8 are
// attributed to damage, not to another encoding.
bool is_eight_bit(std::string_view text) {
  constexpr std::size_t kHeadBytes = 1 << 20;
  constexpr std::ptrdiff_t kMinBytes = 4;
  text = text.substr(0, kHeadBytes);
  std::ptrdiff_t wrong = 0, right = 0;  // bytes that are not UTF-8; non-ASCII characters
  while (!text.empty()) {
    const std::size_t good = utf8_prefix(text);
    const std::string_view prefix = text.substr(0, good);
    right += std::ranges::count_if(prefix, [](char c) { return (c & '\xC0') == '\xC0'; });
    text.remove_prefix(good);
    if (text.size() == utf8_cut_off(text)) break;
    ++wrong;
    text.remove_prefix(1);
  }
  return wrong >= kMinBytes && wrong > right;
}

}  // namespace

FileForm form_of(const fs::path& path) {
  FileForm form;
  std::string ending = ending_of(path);
  form.compressed = ending == ".gz" || ending == ".zst";
  if (form.compressed) ending = ending_of(path.stem());
  const auto foreign = std::ranges::find(kForeign, ending, &Foreign::ending);
  if (foreign != kForeign.end()) {
    form.kind = FileForm::Kind::kForeign;
    form.name = foreign->name;
    form.advice = foreign->advice;
    if (form.advice == kParquet)
      form.advice +=
          fmt::format(": {} {} | muograph tokenize -", installed_word("scripts/read_parquet.py"),
                      shell_word(path.string()));
  } else if (ending == ".jsonl" || ending == ".ndjson" || ending == ".json") {
    form.kind = FileForm::Kind::kJsonLines;
  }
  return form;
}

NotText find_not_text(std::string_view contents) {
  if (const std::string_view encoding = other_encoding(contents); !encoding.empty())
    return {.why = std::string(encoding), .advice = conversion_advice(encoding)};
  const std::size_t zero = contents.find('\0');
  if (zero != std::string_view::npos)
    return {.why = "binary",
            .advice = concat("there is a zero byte at offset ", zero,
                             ": give text (convert UTF-16 to UTF-8), or leave it out")};
  if (!is_eight_bit(contents)) return {};
  return {.why = "Latin-1 or the like",
          .advice = concat("byte ", utf8_prefix(contents), " is the first that is not UTF-8: ",
                           conversion_advice("WINDOWS-1252"), " (or its actual encoding)")};
}

std::int64_t LeftOut::count(const std::string& why) const {
  const auto found = counts_.find(why);
  return found == counts_.end() ? 0 : found->second;
}

std::string LeftOut::text() const {
  std::string out;
  for (const auto& [why, count] : counts_)
    out += concat(out.empty() ? "" : ", ", count, " ", why);
  return out;
}

}  // namespace muo::data
