#pragma once

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "data/token_data.h"

namespace muo::test {

// A new directory that is removed with its contents.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "muograph_data_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;  // a destructor does not throw
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes a file, creating the directories above it.
  // NOLINTNEXTLINE(modernize-use-nodiscard): the caller may know the path
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);  // ext4 flushes a truncated and rewritten file, which is slow
    std::ofstream out(path, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
    return path;
  }

 private:
  std::filesystem::path path_;
};

inline std::string shard_bytes(const std::vector<std::uint16_t>& tokens, std::int32_t count,
                               std::int32_t magic = 20240520, std::int32_t version = 1) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string out(1024 + 2 * tokens.size(), '\0');
  std::memcpy(out.data(), header.data(), 1024);
  if (!tokens.empty()) std::memcpy(out.data() + 1024, tokens.data(), 2 * tokens.size());
  return out;
}

inline std::string shard_bytes(const std::vector<std::uint16_t>& tokens) {
  return shard_bytes(tokens, static_cast<std::int32_t>(tokens.size()));
}

inline std::vector<std::int32_t> all_tokens(const data::TokenData& data) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(data.size()));
  data.read(0, out);
  return out;
}

// The text of the InputError that open_corpus() throws; empty if it throws none.
inline std::string input_error(const data::DataOptions& options) {
  try {
    static_cast<void>(data::open_corpus(options));
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

// The byte tokenizer's tokens of a document.
inline std::vector<std::int32_t> document(std::string_view text) {
  std::vector<std::int32_t> out{256};
  for (const char c : text)
    out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace muo::test
