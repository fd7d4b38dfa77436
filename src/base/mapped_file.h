#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace muo {

// A regular file, mapped read-only for the lifetime of this object. Thread-safe for readers. A file
// that another process truncates meanwhile ends this process with SIGBUS, as with any mapping.
class MappedFile {
 public:
  // Throws InputError with the reason if the file cannot be opened and mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;  // page-aligned; null for an empty file
  std::size_t size_ = 0;
};

}  // namespace muo
