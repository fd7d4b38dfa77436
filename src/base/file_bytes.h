#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace muo {

// The contents of a regular file, immutable: small ones are read, large ones mapped (a file that
// is cut short while it is mapped kills the process with SIGBUS, as for every mapping).
// Throws InputError for what is missing, not readable or not a regular file; never waits for a
// fifo.
class FileBytes {
 public:
  explicit FileBytes(const std::filesystem::path& path);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  // Aligned to at least 16 bytes.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  std::vector<std::byte> read_;  // empty if mapped
};

}  // namespace muo
