#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace muo {

// The immutable contents of a regular file. Small files are read, large ones are mapped: truncating
// a mapped file ends the program (see map_file()). Copies share the contents.
class FileBytes {
 public:
  // Throws InputError if the file is missing, unreadable or not a regular file. Never blocks on a
  // FIFO.
  explicit FileBytes(const std::filesystem::path& path);

  // Valid while a copy of this object exists; aligned to at least 16 bytes; never null.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

// Throws InputError for `error`, a value of errno.
[[noreturn]] void fail_to_read(const std::filesystem::path& path, int error);

}  // namespace muo
