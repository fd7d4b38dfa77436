#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace muo::data {

// Reads the bytes of a file from start to end, decompressed if the file's name says it is
// compressed (form_of); files of several gzip members or zstd frames are supported. Not
// thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` as far as the file reaches and returns the number of bytes. Throws InputError,
  // naming the file, if it cannot be read, is damaged or is truncated.
  virtual std::size_t read(std::span<char> out) = 0;
  // Bytes read so far of the file as stored on disk (before decompression).
  [[nodiscard]] virtual std::int64_t bytes_taken() const = 0;
};

// `path` "-" is standard input, never decompressed.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace muo::data
