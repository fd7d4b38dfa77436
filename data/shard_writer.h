#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "data/shard_manifest.h"
#include "data/shards.h"

namespace muo::data {

// Writes one token shard, under a hidden name until the shard is complete. Throws WriteError.
class ShardWriter {
 public:
  // Creates FOLDER/NAME for at most `capacity` tokens.
  ShardWriter(const std::filesystem::path& folder, std::string name, const ShardFormat& format,
              std::int64_t capacity);
  ~ShardWriter();  // removes an unfinished shard
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  [[nodiscard]] std::int64_t left() const { return capacity_ - entry_.tokens; }
  // Appends at most left() ids.
  void append(std::span<const std::int32_t> ids);
  // Writes the header, gives the file its name, and syncs file and folder to the disk.
  ShardEntry finish();

 private:
  void flush();
  [[noreturn]] void fail(int error) const;
  void write(std::int64_t offset, std::span<const char> bytes) const;

  std::filesystem::path path_, temporary_;
  ShardFormat format_;
  std::int64_t capacity_;
  FileDescriptor file_;
  ShardEntry entry_;
  std::vector<char> buffer_;
  std::int64_t written_ = 0;      // bytes of tokens written, without those in the buffer
  std::uint32_t tokens_crc_ = 0;  // CRC-32 of those bytes
};

}  // namespace muo::data
