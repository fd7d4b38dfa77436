#include "data/file_form.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"

namespace muo::data {
namespace {

namespace fs = std::filesystem;

// ".gz", whatever the case of its letters.
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
constexpr std::array<Foreign, 12> kForeign = {{
    {".parquet", "Parquet", "pipe it: scripts/read_parquet.py FILE | muograph tokenize -"},
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
  } else if (ending == ".jsonl" || ending == ".ndjson" || ending == ".json") {
    form.kind = FileForm::Kind::kJsonLines;
  }
  return form;
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
