#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file_bytes.h"
#include "runtime/tensor.h"

namespace muo::trainer {

// The safetensors format (github.com/huggingface/safetensors, README "Format"): the header length
// as 8 little-endian bytes, a JSON header padded with spaces to 8 bytes, then the tensors' bytes,
// little-endian, row-major, without holes. Supported dtypes: F32, BF16, F64, I32, I64, and U8 for
// DType::kBytes. At most four axes.

using SafetensorsMetadata = std::map<std::string, std::string>;

// Convert between a shape and its extents (at most four).
Shape shape_of(const std::vector<std::int64_t>& extents);
std::vector<std::int64_t> extents_of(const Shape& shape);

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

struct SafetensorsEntry {
  SafetensorsSpec spec;
  std::int64_t begin = 0;  // byte offsets in the file
  std::int64_t end = 0;
};

// Layout of a file. It is a pure function of the tensors, so all writers compute the same offsets.
struct SafetensorsLayout {
  std::vector<std::byte> head;            // all bytes before the tensors
  std::vector<SafetensorsEntry> entries;  // by offset: wide dtypes first, then by name
  std::int64_t file_bytes = 0;
};

// Throws Error for duplicate or invalid names (see SafetensorsFile) and for negative extents.
SafetensorsLayout layout_safetensors(std::span<const SafetensorsSpec> specs,
                                     const SafetensorsMetadata& metadata);

// A memory-mapped safetensors file. The constructor validates all of it, whatever bytes it
// contains, and throws InputError naming the file and the tensor. It rejects names that are unsafe
// as a path ("", "/x", "a/../b") or contain control characters.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::span<const SafetensorsEntry> entries() const { return entries_; }  // by offset
  [[nodiscard]] const SafetensorsMetadata& metadata() const { return metadata_; }
  // Returns null if there is no such tensor.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
  // The bytes of a tensor, which may be misaligned for its dtype.
  [[nodiscard]] std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  // All bytes before the tensors.
  [[nodiscard]] std::span<const std::byte> head() const;

 private:
  std::filesystem::path path_;
  FileBytes file_;
  std::size_t head_bytes_ = 0;
  SafetensorsMetadata metadata_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace muo::trainer
