#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace muo::data {

// Reads the bytes of a file from start to end, decompressed if the file's name indicates
// compression (form_of). Files may consist of several gzip members or zstd frames. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` as far as the file reaches and returns the number of bytes. Throws InputError,
  // which names the file, if the file cannot be read, is damaged or is truncated.
  virtual std::size_t read(std::span<char> out) = 0;
  // Bytes read so far from the file as it is stored on disk, i.e. before decompression.
  [[nodiscard]] virtual std::int64_t bytes_taken() const = 0;
};

// If `path` is "-", reads standard input, which is never decompressed.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace muo::data
