#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace muo::data {

// What a file holds by its name, in small or capital letters.
struct FileForm {
  enum class Kind : std::uint8_t {
    kText,       // any name but these
    kJsonLines,  // .jsonl, .ndjson, .json
    kForeign     // Parquet, archives, compressed in ways that are not read
  };
  Kind kind = Kind::kText;
  bool compressed = false;     // .gz or .zst after it: open_bytes() decompresses it
  std::string_view name = {};  // of what is foreign
  std::string advice = {};     // of what is foreign: what to do with it
};
FileForm form_of(const std::filesystem::path& path);

// Why `contents` are not text that is read, and what to do; empty: they are.
struct NotText {
  std::string why, advice;
};
NotText find_not_text(std::string_view contents);

// Files of folders that were not taken, by why: what is named is refused instead.
class LeftOut {
 public:
  // "binary", "Parquet", ...; several of the same kind are counted.
  void add(const std::string& why, std::int64_t count = 1) { counts_[why] += count; }
  [[nodiscard]] std::int64_t count(const std::string& why) const;
  // "2 binary, 1 Parquet"; empty: none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace muo::data
