#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace muo::data {

// The format of a file, determined by its name; the case of letters is ignored.
struct FileForm {
  enum class Kind : std::uint8_t {
    kText,       // any other name
    kJsonLines,  // .jsonl, .ndjson, .json
    kForeign     // Parquet, archives, unsupported compression
  };
  Kind kind = Kind::kText;
  bool compressed = false;     // .gz or .zst follows; open_bytes() decompresses the file
  std::string_view name = {};  // the name of a foreign format
  std::string advice = {};     // for a foreign format: what to do with the file
};
FileForm form_of(const std::filesystem::path& path);

// The reason why `contents` are not readable text, and what to do. Both are empty if they are text.
struct NotText {
  std::string why, advice;
};
NotText find_not_text(std::string_view contents);

// Counts files in folders that were left out, by reason. (If the user named the file, it is
// an error instead.)
class LeftOut {
 public:
  // `why` is "binary", "Parquet", ...; equal reasons are added up.
  void add(const std::string& why, std::int64_t count = 1) { counts_[why] += count; }
  [[nodiscard]] std::int64_t count(const std::string& why) const;
  // "2 binary, 1 Parquet"; empty if nothing was left out.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace muo::data
