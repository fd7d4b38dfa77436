#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace muo {

// The contents of a regular file, immutable: small ones are read, large ones mapped (map_file():
// one that is cut short meanwhile ends the program). Copies share them.
class FileBytes {
 public:
  // Throws InputError for what is missing, not readable or not a regular file; never waits for a
  // fifo.
  explicit FileBytes(const std::filesystem::path& path);

  // Valid while a copy of this lives; aligned to at least 16 bytes; never at address 0.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

// Throws InputError of errno's value `error`.
[[noreturn]] void fail_to_read(const std::filesystem::path& path, int error);

}  // namespace muo
