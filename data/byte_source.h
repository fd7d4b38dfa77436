#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace muo::data {

// The bytes of a file from start to end: as they are, or, if its name says so (form_of),
// decompressed (several members or frames one after the other too). Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` as far as the file goes; returns how much. Throws InputError, naming the file, for
  // what cannot be read, is damaged or ends early.
  virtual std::size_t read(std::span<char> out) = 0;
  // Of the file as it lies on the disk, up to now.
  [[nodiscard]] virtual std::int64_t bytes_taken() const = 0;
};

// `path` "-" is standard input, as it is.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace muo::data
